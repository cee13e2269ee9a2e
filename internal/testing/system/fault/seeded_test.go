//go:build unix

package fault

// seeded is a bug that a kind must find.
type seeded struct {
	bug, kind string
	finds     string         // a pattern of the violations that name it
	sqlite    bool           // it is on SQLite
	run       func(w *world) // instead of the kind's round
}

// eitherSees is of the checkers that look for two who believe in the same lock: one of them must
// find a bug of that kind.
const eitherSees = "^(" + exclusion + "|" + tokens + "|" + order + "): "

// What a kind finds is worth nothing, unless it finds what is there.
var seededBugs = []seeded{
	{bug: bugGrantsUnseen, kind: "history", finds: eitherSees},
	{bug: bugReusesTokens, kind: "history", finds: "^(" + tokens + "|" + order + "): "},
	{bug: bugNeverDies, kind: "history", finds: eitherSees},
	{bug: bugDropsHandOffs, kind: "history", finds: "^" + vacancy},
	{bug: bugNeverGivesBack, kind: "history", finds: "^" + quiescence},
	{bug: bugServesSecond, kind: "history", finds: "^(" + fairness + "|" + hearsay + "): "},
	{bug: bugDiesTooSoon, kind: "history", finds: "^" + losses},
	{bug: bugAsksNobody, kind: "history", finds: eitherSees},
	{bug: bugOneTooMany, kind: "history", finds: eitherSees},
	{bug: bugCountsOne, kind: "history", finds: eitherSees},
	{bug: bugWriterBeside, kind: "history", finds: eitherSees},
	{bug: bugReaderBeside, kind: "history", finds: eitherSees},
	{bug: bugUpgradesBeside, kind: "history", finds: eitherSees},
	{bug: bugDowngradesToNothing, kind: "history", finds: eitherSees},
	{bug: bugLetsSmallPass, kind: "history", finds: "^(" + fairness + "|" + hearsay + "): "},
	{bug: bugLetsReadersPass, kind: "history", finds: "^" + fairness},
	{bug: bugForgetsUnits, kind: "history", finds: "^" + quiescence},
	{bug: bugLeavesRoom, kind: "history", finds: "^" + vacancy},
	{bug: bugReenters, kind: "application", finds: "^" + twoHolders},
	{bug: bugUnguarded, kind: "application", finds: "^" + lateWrite},
	{bug: bugUnlocksEarly, kind: "application", finds: "^" + lateWrite},
	{bug: bugNoLockTx, kind: "application", finds: "^" + twoHolders},
	{bug: bugNoAdvisory, kind: "application", finds: "^" + twoHolders},
	{bug: bugNoBump, kind: "application", finds: "^" + lostUpdate},
	{bug: bugLogsFirst, kind: "application", finds: "^" + twoHolders},
	{bug: bugBorrows, kind: "application", finds: "^" + borrowings},
	{bug: bugSharesFate, kind: "application", finds: "^" + sharedFate},
	{bug: bugForgetsRows, kind: "application", finds: "^" + miscounts},
	{bug: bugLooksElsewhere, kind: "application", finds: "^" + twoHolders},
	{bug: bugBelievesTx, kind: "application", finds: "^" + zombies},
	{bug: bugTwoLeaders, kind: "election", finds: "^" + exclusion, run: twoLeaders},
	{bug: bugTwoLeaders, kind: "shares", finds: "^" + exclusion, run: twoMembers},
	{bug: bugStrays, kind: "shares", finds: "^" + strays, run: unchangedMembers},
	{bug: bugRunsTwice, kind: "once", finds: "in no slot|times under one lock"},
	{bug: bugOldest, kind: "ring", finds: "the youngest"},
	{bug: bugTakesCopies, kind: "crash", finds: "^" + burials},
	{bug: bugForgetsProof, kind: "crash", finds: "^" + succession},
	{bug: bugNeverDies, kind: "scenarios", finds: "believed in for"},
	{bug: bugForgetsWipe, kind: "quorum", finds: "^" + exclusion, sqlite: true},
	{bug: bugKeepsHalf, kind: "migrations", finds: "half a version", sqlite: true},
	{bug: bugNoLock, kind: "fee", finds: "fees were lost"},
}
