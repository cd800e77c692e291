package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// TLSServer is a server that speaks TLS alone and wants a certificate from clients.
type TLSServer struct {
	*Server
	CA, Cert, Key string // files: the authority's certificate, and a client's own two
}

// TLS starts such a server, whose certificate is for localhost and 127.0.0.1.
func TLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	return newAuthority(t).server(t, args...)
}

// SeveralTLS starts n such servers that have one authority.
func SeveralTLS(t testing.TB, n int, args ...string) (list []*TLSServer) {
	t.Helper()
	ca := newAuthority(t)
	for range n {
		list = append(list, ca.server(t, args...))
	}
	return list
}

func (ca *authority) server(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	dir := daemon.Dir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	s := &TLSServer{CA: file("ca.pem"), Cert: file("client.pem"), Key: file("client-key.pem")}
	writePEM(t, s.CA, "CERTIFICATE", ca.cert.Raw)
	ca.issue(t, "server", file("server.pem"), file("server-key.pem"))
	ca.issue(t, "client", s.Cert, s.Key)
	s.Server = start(t, func(server *Server) {
		server.tls = s.clientConfig(t)
		server.args = append([]string{
			"--port", "0", "--tls-port", strconv.Itoa(server.Port), "--tls-auth-clients", "yes",
			"--tls-ca-cert-file", s.CA, "--tls-cert-file", file("server.pem"), "--tls-key-file", file("server-key.pem"),
		}, args...)
	})
	return s
}

func (s *TLSServer) clientConfig(t testing.TB) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	template := newTemplate("test authority", 1)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key := newKey(t)
	return &authority{sign(t, template, template, key, key), key}
}

// issue makes a certificate and its key, in files.
func (a *authority) issue(t testing.TB, name, certFile, keyFile string) {
	t.Helper()
	template := newTemplate(name, 2)
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newKey(t)
	writePEM(t, certFile, "CERTIFICATE", sign(t, template, a.cert, key, a.key).Raw)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "PRIVATE KEY", der)
}

func newTemplate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
