package zktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// TLSServer is a server that speaks TLS on a port of its own, and wants a certificate
// from clients there.
type TLSServer struct {
	*Server
	SecurePort    int
	CA, Cert, Key string // files: the authority's certificate, and a client's own two
}

// StartTLS starts such a server, whose certificate is for localhost and 127.0.0.1.
func StartTLS(t testing.TB) *TLSServer {
	t.Helper()
	dir := daemon.Dir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	s := &TLSServer{SecurePort: daemon.FreePort(t), CA: file("ca.pem"), Cert: file("client.pem"), Key: file("client-key.pem")}
	ca := newCertificate(t, "test authority", nil)
	ca.write(t, s.CA, "")
	newCertificate(t, "server", ca).write(t, file("server.pem"), file("server.pem"))
	newCertificate(t, "client", ca).write(t, s.Cert, s.Key)
	s.Server = Start(t, "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		fmt.Sprintf("secureClientPort=%d", s.SecurePort), "secureClientPortAddress=127.0.0.1",
		"ssl.keyStore.type=PEM", "ssl.keyStore.location="+file("server.pem"),
		"ssl.trustStore.type=PEM", "ssl.trustStore.location="+s.CA, "ssl.clientAuth=need")
	return s
}

// URL is zks://host:port with what a client needs.
func (s *TLSServer) URL(path string) string {
	return fmt.Sprintf("zks://localhost:%d%s?ca=%s&cert=%s&key=%s", s.SecurePort, path, s.CA, s.Cert, s.Key)
}

type certificate struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCertificate makes a certificate that the authority signs; without one it is one.
func newCertificate(t testing.TB, name string, authority *certificate) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent := authority
	if authority == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent = &certificate{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &certificate{cert, key}
}

// write writes the key and the certificate, which may share a file; without a name the
// key is not written.
func (c *certificate) write(t testing.TB, certFile, keyFile string) {
	t.Helper()
	if keyFile != "" {
		der, err := x509.MarshalPKCS8PrivateKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		appendPEM(t, keyFile, "PRIVATE KEY", der)
	}
	appendPEM(t, certFile, "CERTIFICATE", c.cert.Raw)
}

func appendPEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pem.Encode(f, &pem.Block{Type: kind, Bytes: der}); err != nil {
		t.Fatal(err)
	}
}
