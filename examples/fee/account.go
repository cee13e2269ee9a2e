package main

import "fmt"

// account is the data that the servers read and write. All money is in whole cents.
type account struct {
	balance    int64
	deductions int // the number of fees that the balance reflects
}

// The account starts with a deposit. When a fee leaves less than the minimum, after about 500 fees,
// the same write adds the deposit again. Otherwise the fees of a long run would be rounded to
// nothing.
const (
	deposit = 1_000_000_000_00
	minimum = 100_00
)

// fee is 3 % of a balance in cents, rounded half up to a whole cent.
func fee(balance int64) int64 { return (balance*3 + 50) / 100 }

// afterFee returns the account one fee later.
func (a account) afterFee() account {
	a.balance -= fee(a.balance)
	if a.balance < minimum {
		a.balance += deposit
	}
	a.deductions++
	return a
}

// replay deducts n fees from a new account, one after the other. After n fees, no other balance is
// correct.
func replay(n int) account {
	a := account{balance: deposit}
	for range n {
		a = a.afterFee()
	}
	return a
}

// money formats cents as 1,234,567.89.
func money(cents int64) string {
	if cents < 0 {
		return "-" + money(-cents)
	}
	whole := fmt.Sprint(cents / 100)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return fmt.Sprintf("%s.%02d", whole, cents%100)
}
