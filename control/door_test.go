package control

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
)

// Who shows a certificate of another CA is told that, each time: the connection is not reset under the alert.
func TestRefusedCertificateIsSaid(t *testing.T) {
	a := newAuthority(t)
	address, _ := guarded(t, a)
	files := newAuthority(t).issue(t, "mallory", "", time.Now().Add(time.Hour))
	files.CA = a.file
	for try := range 30 {
		c, err := DialTLS(address, files)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.GetNIC(t.Context(), &apiv1.GetNICRequest{})
		c.Close()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "tls: unknown certificate authority") {
			t.Fatalf("try %d: %v", try, err)
		}
	}
}

// Who was refused and stays is sent away nevertheless.
func TestRefusedClientStays(t *testing.T) {
	a := newAuthority(t)
	address, _ := guarded(t, a)
	files := newAuthority(t).issue(t, "mallory", "", time.Now().Add(time.Hour))
	files.CA = a.file
	config, err := files.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"h2"}
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := raw.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var alert *net.OpError
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Errorf("no alert: %v", err)
	}
	if _, err := raw.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays: %v", err)
	}
}
