package interop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/layout"
)

// cable is a link between the kit, on interface kit, and a card, on interface card, each in a namespace of its own.
type cable struct{ kit, card *netlab.NS }

func newCable(t testing.TB, mtu int) cable {
	t.Helper()
	lab := netlabtest.New(t, "interop")
	c := cable{netlabtest.Namespace(t, lab, "kit"), netlabtest.Namespace(t, lab, "card")}
	netlabtest.Veth(t, lab, netlab.End{NS: c.kit, Name: "kit", MTU: mtu}, netlab.End{NS: c.card, Name: "card", MTU: mtu})
	return c
}

// open opens the kit's end as a target.
func (c cable) open(t testing.TB, o *Options) *Interface {
	t.Helper()
	var target *Interface
	err := c.kit.Do(func() (err error) {
		target, err = OpenInterface("kit", o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// gradnic runs a data plane on the card's end, with the suite's job.
func (c cable) gradnic(t testing.TB, o *Options, s *Suite) *dataplane.NIC {
	t.Helper()
	port := dataplane.XDPPort{Interface: "card", Namespace: c.card.Do, WholePort: s.layout.EtherType != 0}
	n, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt, Layouts: s.layouts()}, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Start(context.Background()), n.InstallJob(Job(o, s))); err != nil {
		t.Fatal(errors.Join(err, n.Stop(context.Background())))
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if s := n.Snapshot(); s.Check() != nil {
			t.Error(s.Check())
		}
	})
	return n
}

// The suites pass over a veth: AF_XDP on the card's side, a packet socket on the kit's.
func TestVeth(t *testing.T) {
	for _, x := range []struct {
		suite, layout string
		elements      int
	}{{"switchml", "", 64}, {"switchml", "", 256}, {"native", "", 64}, {"native", "inhouse", 256}} {
		t.Run(fmt.Sprintf("%s-%s-%d", x.suite, x.layout, x.elements), func(t *testing.T) {
			t.Parallel()
			s, o := load(t, x.suite), options(t, x.elements)
			if x.layout != "" {
				l, err := layout.Load(x.layout)
				if err != nil {
					t.Fatal(err)
				}
				if s, err = s.With(l); err != nil {
					t.Fatal(err)
				}
			}
			c := newCable(t, 1500)
			c.gradnic(t, &o, s)
			o.Quiet, o.Timeout = 8*time.Millisecond, 5*time.Second // a busy machine is slow, not silent
			target := c.open(t, &o)
			defer target.Close()
			r, err := Run(context.Background(), s, target, "kit", o)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Results {
				jumbo := c.Case == "frame-9014" || x.layout != "" && c.Case == "not-messages"
				if c.Verdict != Passed && !(c.Verdict == Unsupported && jumbo) {
					t.Errorf("%s: %v: %s", c.Case, c.Verdict, c.Detail)
				}
			}
			if r.Count(Passed) < len(s.Cases)-4 {
				t.Errorf("%d passed", r.Count(Passed))
			}
		})
	}
}

// A link with jumbo frames takes the longest of the ladder.
func TestVethJumbo(t *testing.T) {
	s, o := load(t, "switchml"), options(t, 64)
	c := newCable(t, 9000)
	c.gradnic(t, &o, s)
	o.Only = []string{"sum", "frame-9014"}
	target := c.open(t, &o)
	defer target.Close()
	r, err := Run(context.Background(), s, target, "kit", o)
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, r)
}

// With nobody on the other end, cases that expect something fail, and say what is missing.
func TestVethNobody(t *testing.T) {
	s, o := load(t, "switchml"), options(t, 64)
	c := newCable(t, 1500)
	o.Only, o.Timeout = []string{"sum", "vlan", "arp-for-others"}, 50*time.Millisecond
	target := c.open(t, &o)
	defer target.Close()
	r, err := Run(context.Background(), s, target, "kit", o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Count(Failed) != 2 || r.Count(Passed) != 1 {
		t.Errorf("%+v", r.Results)
	}
}
