package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"gradnic/worker/accl"
)

// Call is a collective that the card makes while a case runs: it is one of two ranks, and the kit is the other. Rank r's
// element i is (r+1)*(i+1), or r+1+i/10 with Tenths.
type Call struct {
	Collective string `yaml:"collective"`
	Type       string `yaml:"type"` // "": int32
	Op         string `yaml:"op"`   // "": sum
	Count      int    `yaml:"count"`
	Root       int    `yaml:"root"`
	Tag        uint32 `yaml:"tag"`
	Tenths     bool   `yaml:"tenths"`
	// Codec makes it a ring's: the card is node 0 of Nodes, 0: 2, and its host hands in a request of no elements and one of
	// Count, twice. Elements are as ringModel has them.
	Codec string `yaml:"codec"`
	Nodes int    `yaml:"nodes"`
}

// cardRank is the card's rank in calls; the kit is worker 0.
const cardRank = 1

// caller is a target whose card can be told to make a call.
type caller interface {
	// Begin makes the card anew, so that its counts start at 0, and begins the call.
	Begin(Call) error
	// End returns why the call failed, or did not end.
	End() error
}

// aborter is a caller whose call can be ended when the case has failed, and nobody goes on with it.
type aborter interface{ Abort() }

// values are a rank's elements as they lie in memory.
func (c *Call) values(rank, n int) ([]byte, error) {
	v := Values{Start: int64(rank + 1), Step: int64(rank + 1), Type: c.Type}
	if c.Tenths {
		out := make([]byte, 0, 4*n)
		for i := range n {
			out = appendFloat32(out, float32(rank+1)+float32(i)/10)
		}
		return out, nil
	}
	return v.bytes(n, true)
}

// engineCall is the call for a rank of gradnic.
func (c *Call) engineCall(rank int) (x accl.Call, err error) {
	typ := c.Type
	if typ == "" {
		typ = "int32"
	}
	if x.Collective, err = accl.ParseCollective(c.Collective); err != nil {
		return x, err
	}
	if x.Type, err = accl.ParseType(typ); err != nil {
		return x, err
	}
	if c.Op != "" {
		if x.Op, err = accl.ParseOp(c.Op); err != nil {
			return x, err
		}
	}
	x.Count, x.Root, x.Tag = c.Count, c.Root, c.Tag
	src, dst := x.Lengths(rank, 2)
	x.Dst = make([]byte, dst)
	x.Src, err = c.values(rank, src/x.Type.Size())
	return x, err
}

// ACCLMem is a rank of gradnic in this process.
type ACCLMem struct {
	o   *Options
	r   *accl.Responder
	out [][]byte
}

// OpenACCLMem makes the target; a case's call makes the rank.
func OpenACCLMem(o *Options) *ACCLMem { return &ACCLMem{o: o} }

// config is the communicator of the kit's rank 0 and the card.
func acclConfig(o *Options) accl.Config {
	w := o.worker(0)
	return accl.Config{Rank: cardRank, Timeout: 5 * time.Second, Ranks: []accl.Peer{{MAC: w.MAC, IP: w.IP}, {MAC: o.NIC.MAC, IP: o.NIC.IP}}}
}

// Begin implements caller.
func (m *ACCLMem) Begin(c Call) error {
	x, err := c.engineCall(cardRank)
	if err != nil {
		return err
	}
	if m.r, err = accl.NewResponder(acclConfig(m.o), x); err != nil {
		return err
	}
	m.out = m.r.Frames(m.r.Start())
	return nil
}

// End implements caller.
func (m *ACCLMem) End() error {
	if !m.r.Done() {
		return errors.New("the call has not ended")
	}
	return errors.Join(m.r.Results()...)
}

// Send implements Target. What the rank refuses is dropped, as on a wire.
func (m *ACCLMem) Send(frame []byte) error {
	if m.r == nil {
		return nil
	}
	got, _ := m.r.Frame(frame)
	m.out = append(m.out, got...)
	return nil
}

// Collect implements Target.
func (m *ACCLMem) Collect(int) ([][]byte, error) {
	out := m.out
	m.out = nil
	return out, nil
}

// Limits implements Target.
func (m *ACCLMem) Limits() Limits { return Limits{Longest: 4138} }

// Close implements Target.
func (m *ACCLMem) Close() error { return nil }

// skipped is the status of a command that cannot make a call: that of a skipped test with automake.
const skipped = 77

// called is a target on an interface whose card makes calls by a command.
type called struct {
	Target
	ctx     context.Context
	command string
	cmd     *exec.Cmd
	said    *tailWriter
}

// Next implements next.
func (t *called) Next(deadline time.Time) ([]byte, error) {
	if n, ok := t.Target.(next); ok {
		return n.Next(deadline)
	}
	return nil, fmt.Errorf("%w: the target does not give frames one by one", errUnsupported)
}

// Begin runs the command with the call in its environment, and gives it a moment.
func (t *called) Begin(c Call) error {
	if _, err := t.Collect(0); err != nil { // what the card sent when it ended the call before
		return err
	}
	t.said = &tailWriter{}
	t.cmd = exec.CommandContext(t.ctx, "/bin/sh", "-c", t.command)
	t.cmd.Env = append(os.Environ(), c.environment()...)
	t.cmd.Stdout, t.cmd.Stderr, t.cmd.WaitDelay = t.said, t.said, time.Second
	return t.cmd.Start()
}

// End waits for the command.
func (t *called) End() error {
	if err := t.cmd.Wait(); err != nil {
		if t.cmd.ProcessState != nil && t.cmd.ProcessState.ExitCode() == skipped {
			return fmt.Errorf("%w: the call's command says that the card cannot: %s", errUnsupported, t.said)
		}
		return fmt.Errorf("the call's command: %w; it says: %s", err, t.said)
	}
	return nil
}

func (c *Call) environment() []string {
	if c.Codec != "" {
		return c.ringEnvironment()
	}
	typ, op := c.Type, c.Op
	if typ == "" {
		typ = "int32"
	}
	if op == "" {
		op = "sum"
	}
	return []string{
		"ACCL_COLLECTIVE=" + c.Collective, "ACCL_TYPE=" + typ, "ACCL_OP=" + op, fmt.Sprintf("ACCL_COUNT=%d", c.Count),
		fmt.Sprintf("ACCL_ROOT=%d", c.Root), fmt.Sprintf("ACCL_TAG=%d", c.Tag), fmt.Sprintf("ACCL_RANK=%d", cardRank),
		"ACCL_SOURCE=" + map[bool]string{false: "(rank+1)*(i+1)", true: "rank+1+i/10"}[c.Tenths],
	}
}

// begin has the card make a case's call.
func (x *caseRun) begin() error {
	c, ok := x.t.(caller)
	if !ok {
		return fmt.Errorf("%w: the card must make a call, %s: give the command that does it (--call)", errUnsupported, strings.Join(x.c.Call.environment(), " "))
	}
	if x.c.Call.Codec != "" {
		if err := x.startRing(); err != nil {
			return err
		}
	}
	return c.Begin(*x.c.Call)
}

// end looks how the call ended.
func (x *caseRun) end() error {
	err := x.t.(caller).End()
	switch {
	case errors.Is(err, errUnsupported):
		return err
	case err != nil && !x.c.CallFails:
		return fmt.Errorf("%w: the card's call: %v", errFailed, err)
	case err == nil && x.c.CallFails:
		return fmt.Errorf("%w: the card's call ended well, and should not", errFailed)
	}
	return nil
}
