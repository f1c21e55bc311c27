package peers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"gradnic/internal/netlab"
)

// Each contestant is a process of its own: no library's leftovers, collector or threads touch the next one's run. The
// protocol is the same for all: arguments IFNAME QUEUE TASK CPU, "ready" on standard output, work until standard input
// ends, one line of JSON with the counts.

// Process is a contestant that runs.
type Process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	after func() error // what is undone when it has ended; nil: nothing
	// counts tells it to end and reads what it counted; nil: by the protocol above.
	counts func() (Counts, error)
}

// Launch starts a contestant in ns: argv and then the target's arguments. files are its descriptors from 3 on.
func Launch(ns *netlab.NS, name string, argv []string, on Target, files ...*os.File) (*Process, error) {
	args := append(argv[1:len(argv):len(argv)], on.Interface, strconv.Itoa(on.Queue), on.Task.String(), strconv.Itoa(on.CPU))
	p := &Process{name: name, cmd: exec.Command(argv[0], args...)}
	p.cmd.Stderr = os.Stderr
	p.cmd.ExtraFiles = files
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.out = bufio.NewReader(stdout)
	if err := ns.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		p.cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("%s said %q, not ready: %w", name, line, err), p.cmd.Wait())
	}
	return p, nil
}

// Stop ends the contestant and returns its counts.
func (p *Process) Stop() (Counts, error) {
	timer := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	counts := p.counts
	if counts == nil {
		counts = p.jsonCounts
	}
	n, err := counts()
	err = errors.Join(err, p.cmd.Wait())
	if state := p.cmd.ProcessState; state != nil {
		n.CPU = state.UserTime() + state.SystemTime()
	}
	if p.after != nil {
		err = errors.Join(err, p.after())
	}
	return n, err
}

// jsonCounts closes its standard input, its sign to end, and reads the line that it prints.
func (p *Process) jsonCounts() (n Counts, err error) {
	p.in.Close()
	if err := json.NewDecoder(p.out).Decode(&n); err != nil {
		return n, fmt.Errorf("read the counts of %s: %w", p.name, err)
	}
	return n, nil
}

// kinds are the contestants written in Go.
var kinds = map[string]func(Target) (Peer, error){
	"asavie":         startAsavie,
	"asavie-example": startAsavieExample,
	"rings":          startRings,
	"lane":           startLane,
	"in-kernel":      startInKernel,
	"udp":            startUDP,
	"packet":         startPacket,
	"slowed":         startSlowed,
}

// Main is the whole life of a contestant's process: args are its kind and the target's four arguments.
func Main(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 5 {
		return fmt.Errorf("a contestant takes KIND IFNAME QUEUE TASK CPU, not %q", args)
	}
	start, ok := kinds[args[0]]
	if !ok {
		return fmt.Errorf("no contestant is named %q", args[0])
	}
	ifi, err := net.InterfaceByName(args[1])
	if err != nil {
		return fmt.Errorf("netdev %s: %w", args[1], err)
	}
	on := Target{Interface: args[1], IfIndex: ifi.Index}
	if on.Task, err = ParseTask(args[3]); err != nil {
		return err
	}
	if on.Queue, err = strconv.Atoi(args[2]); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if on.CPU, err = strconv.Atoi(args[4]); err != nil {
		return fmt.Errorf("CPU: %w", err)
	}
	p, err := start(on)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("wait for the end of input: %w", err)
	}
	n, err := p.Stop()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(n)
}
