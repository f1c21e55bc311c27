package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/netutil"

	"gradnic/control"
)

// maxTLS is how many connections the door has at a time. Others wait to be accepted.
const maxTLS = 256

// TLS is the API's door on TCP: who comes in shows a certificate.
type TLS struct {
	// Listen is HOST:PORT; empty: there is no such door.
	Listen string
	control.TLSFiles
	// Config is what the files had when Read was called; nil: it is called at the start.
	Config *tls.Config
}

// Read reads the certificates into Config; without a door it does nothing.
func (t *TLS) Read() error {
	if t.Listen == "" {
		return nil
	}
	config, err := t.Server()
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	t.Config = config
	return nil
}

// check refuses a door that can not be, without opening anything.
func (t TLS) check() error {
	if t.Listen == "" {
		if t.Given() {
			return errors.New("TLS: certificates are given and no address: say where with tls")
		}
		return nil
	}
	_, port, err := net.SplitHostPort(t.Listen)
	if err != nil {
		return fmt.Errorf("TLS: address %q: write HOST:PORT", t.Listen)
	}
	if err := checkPort(t.Listen, port); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	if t.Config != nil {
		return nil
	}
	return t.Read() // into a copy
}

func (t TLS) listen(ctx context.Context) (net.Listener, error) {
	l, err := control.Listen(ctx, "tcp://"+t.Listen)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return netutil.LimitListener(l, maxTLS), nil
}
