package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

const domain = "example.com"

// authority issues certificates, without a network.
type authority struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int64
	during func(attempt int64) error // what happens while it issues
}

func newAuthority(t *testing.T, during func(attempt int64) error) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &authority{key: key, during: during}
}

func (a *authority) IssuerKey() string { return "test" }

func (a *authority) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := a.during(a.issued.Add(1)); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})},
		nil
}

// magic is the CertMagic of a process of its own.
func (w world) magic(issuer certmagic.Issuer) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	w.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{Storage: w.instance(), Issuers: []certmagic.Issuer{issuer},
		Logger: zap.NewNop()})
	return config
}

func TestTwoInstancesObtainACertificateOnce(t *testing.T) {
	w := newWorld(t)
	ca := newAuthority(t, func(int64) error { time.Sleep(200 * time.Millisecond); return nil })
	var both sync.WaitGroup
	for range 2 {
		magic := w.magic(ca)
		both.Go(func() { assert.NoError(t, magic.ObtainCertSync(t.Context(), domain)) })
	}
	both.Wait()
	if n := ca.issued.Load(); n != 1 {
		t.Errorf("it was issued %d times", n)
	}
}

func TestAnInstanceThatHasLostItsLockIsSucceeded(t *testing.T) {
	w := newWorld(t)
	began, finish := make(chan struct{}), make(chan struct{})
	ca := newAuthority(t, func(attempt int64) error {
		if attempt == 1 {
			close(began)
			<-finish
		}
		return nil
	})
	stuck, next := w.magic(ca), w.magic(ca)
	first := make(chan error, 1)
	go func() { first <- stuck.ObtainCertSync(t.Context(), domain) }()
	<-began
	w.lose(name)
	assert.NoError(t, next.ObtainCertSync(t.Context(), domain))
	close(finish)
	if err := <-first; err != nil { // it is not told, and writes the certificate again
		t.Error(err)
	}
	if n := ca.issued.Load(); n != 2 {
		t.Errorf("it was issued %d times", n)
	}
}
