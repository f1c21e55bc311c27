package daemon

import (
	"context"
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
	if _, err := t.Server(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	return nil
}

func (t TLS) listen(ctx context.Context) (net.Listener, error) {
	l, err := control.Listen(ctx, "tcp://"+t.Listen)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return netutil.LimitListener(l, maxTLS), nil
}
