package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
)

// AdminUnit is the organizational unit in the certificates of administrators. The
// common name of any other client's certificate is its tenant.
const AdminUnit = "gradnic-admin"

// TLSFiles are PEM files: who one is, and whose signature one believes. Both sides
// of the API over TCP show a certificate.
type TLSFiles struct {
	Cert, Key string // of this side
	CA        string // that signed the other side's
}

// Given is true when any of the files is named.
func (f TLSFiles) Given() bool { return f != TLSFiles{} }

func (f TLSFiles) load() (cert tls.Certificate, pool *x509.CertPool, err error) {
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return cert, nil, errors.New("certificates: three files are needed: the certificate, its key, and the CA of the other side")
	}
	if cert, err = tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
		return cert, nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return cert, nil, fmt.Errorf("CA: %w", err)
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return cert, nil, fmt.Errorf("CA %s: no certificate in it", f.CA)
	}
	return cert, pool, nil
}

// Server is the configuration of a server that asks for certificates, from what is in the files now. Each connection shows its
// own: no session of an earlier one is resumed, which may have been let in by another CA.
func (f TLSFiles) Server() (*tls.Config, error) {
	cert, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}, nil
}

// Client is the configuration of a client that shows one.
func (f TLSFiles) Client() (*tls.Config, error) {
	cert, pool, err := f.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}

// doorCredentials ask who comes in by TCP for a certificate, and believe the file
// system about who comes in by a Unix socket: it has mode 0600.
type doorCredentials struct {
	credentials.TransportCredentials // for TCP; nil: nobody comes in there
}

// localAuth is whoever may open the Unix socket.
type localAuth struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (localAuth) AuthType() string { return "local" }

// ServerHandshake implements credentials.TransportCredentials.
func (d doorCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.LocalAddr().Network() == "unix" {
		return c, localAuth{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	if d.TransportCredentials == nil {
		return nil, nil, errors.New("TCP without certificates is not served")
	}
	shaking := &handshakeConn{Conn: c}
	conn, info, err := d.TransportCredentials.ServerHandshake(shaking)
	if err != nil {
		farewell(c)
		return nil, nil, errors.Join(err, c.Close())
	}
	shaking.over = true
	return conn, info, nil
}

// handshakeConn is a connection that a handshake which fails does not close.
type handshakeConn struct {
	net.Conn
	over bool // the handshake
}

func (h *handshakeConn) Close() error {
	if !h.over {
		return nil
	}
	return h.Conn.Close()
}

// farewell lets a client read why it was refused. In TLS 1.3 it believes that the handshake has succeeded and has sent more; closing
// a connection with unread bytes in it resets it, and the client would lose the alert that is on its way.
func farewell(c net.Conn) {
	if c.SetReadDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = io.CopyN(io.Discard, c, 1<<16) // until the client has closed it
	}
}

// ClientHandshake implements credentials.TransportCredentials; a server has no use for it.
func (doorCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are a server's credentials")
}

// Info implements credentials.TransportCredentials.
func (doorCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (d doorCredentials) Clone() credentials.TransportCredentials { return d }

// OverrideServerName implements credentials.TransportCredentials.
func (doorCredentials) OverrideServerName(string) error { return nil }

// Caller is who calls the API.
type Caller struct {
	Admin  bool
	Tenant string // of a caller who is no administrator
}

// callerFrom reads a caller from a connection.
func callerFrom(info credentials.AuthInfo) (Caller, error) {
	switch info := info.(type) {
	case localAuth:
		return Caller{Admin: true}, nil
	case credentials.TLSInfo:
		if len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
			return Caller{}, errors.New("no certificate")
		}
		subject := info.State.VerifiedChains[0][0].Subject
		if slices.Contains(subject.OrganizationalUnit, AdminUnit) {
			return Caller{Admin: true}, nil
		}
		if !jobName.MatchString(subject.CommonName) {
			return Caller{}, fmt.Errorf("the certificate's common name %q is no tenant's name", subject.CommonName)
		}
		return Caller{Tenant: subject.CommonName}, nil
	}
	return Caller{}, errors.New("nobody knows who calls")
}
