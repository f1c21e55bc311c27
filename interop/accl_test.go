package interop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gradnic/dataplane"
	service "gradnic/service/accl"
)

// rankOnNIC is a target on an interface whose card is a rank in a NIC: each call is a new rank's.
type rankOnNIC struct {
	Target
	nic  *dataplane.NIC
	o    *Options
	rank *service.Rank
	done chan error
}

func (r *rankOnNIC) Begin(c Call) error {
	x, err := c.engineCall(cardRank)
	if err != nil {
		return err
	}
	cfg := acclConfig(r.o)
	cfg.Timeout = 3 * time.Second
	if r.rank, err = service.Attach(r.nic, service.Config{Config: cfg, Ports: []string{"card"}}); err != nil {
		return err
	}
	r.done = make(chan error, 1)
	go func() { r.done <- r.rank.Do(context.Background(), x) }()
	return nil
}

func (r *rankOnNIC) End() error { return errors.Join(<-r.done, r.rank.Close()) }

// The ACCL suite passes over a veth with jumbo frames, the card being a rank in a NIC on AF_XDP.
func TestACCLOverVeth(t *testing.T) {
	s, o := load(t, "accl"), options(t, 64)
	o.Quiet, o.Timeout = 8*time.Millisecond, 5*time.Second
	c := newCable(t, 9000)
	n, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt, ChunkSize: 4096}, dataplane.XDPPort{Interface: "card", Namespace: c.card.Do})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	target := &rankOnNIC{Target: c.open(t, &o), nic: n, o: &o}
	defer target.Close()
	r, err := Run(context.Background(), s, target, "kit", o)
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, r)
}

// A card on an interface makes its calls by a command, which gets them in its environment; without one the cases are
// unsupported and say what the card must do.
func TestCallCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "call")
	target := &called{Target: newRefCard(""), ctx: context.Background(), command: "env | grep ^ACCL_ | sort >" + file + "; echo no card >&2; exit 3"}
	o := options(t, 64)
	o.Only = []string{"recorded"}
	r, err := Run(context.Background(), load(t, "accl"), target, "card", o)
	if err != nil || r.Count(Failed) != 1 || !strings.Contains(r.Results[0].Detail, "exit status 3; it says: no card") {
		t.Errorf("%v %+v", err, r)
	}
	text, err := os.ReadFile(file)
	want := "ACCL_COLLECTIVE=allreduce\nACCL_COUNT=17\nACCL_OP=sum\nACCL_RANK=1\nACCL_ROOT=0\nACCL_SOURCE=rank+1+i/10\nACCL_TAG=0\nACCL_TYPE=float32\n"
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
	r, err = Run(context.Background(), load(t, "accl"), newRefCard(""), "card", o)
	if err != nil || r.Count(Unsupported) != 1 || !strings.Contains(r.Results[0].Detail, "ACCL_COUNT=17") {
		t.Errorf("%v %+v", err, r)
	}
}

// A rank that breaks a rule fails the case of that rule.
func TestBrokenRanks(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"unpadded-count": func(f []byte) { f[42]++ },
		"seq":            func(f []byte) { f[42+12] ^= 1 },
		"sum":            func(f []byte) { f[42+64] ^= 1 },
		"reserved":       func(f []byte) { f[42+40] = 1 },
		"port":           func(f []byte) { f[37]++ },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, 64)
			o.Only = []string{"allreduce", "reduce-to-card"}
			r, err := Run(context.Background(), load(t, "accl"), &brokenRank{OpenACCLMem(&o), change}, "card", o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Results[0].Verdict != Failed || r.Results[1].Verdict != Passed {
				t.Errorf("%+v", r.Results)
			}
		})
	}
}

type brokenRank struct {
	*ACCLMem
	change func([]byte)
}

func (b *brokenRank) Collect(n int) ([][]byte, error) {
	out, err := b.ACCLMem.Collect(n)
	for _, f := range out {
		b.change(f)
	}
	return out, err
}
