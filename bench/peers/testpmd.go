package peers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"gradnic/internal/netlab"
)

// ErrNotInstalled says that a yardstick is not on this machine.
var ErrNotInstalled = errors.New("not installed")

const testpmd = "dpdk-testpmd"

// HaveTestpmd tells whether DPDK's testpmd is there.
func HaveTestpmd() error {
	if _, err := exec.LookPath(testpmd); err != nil {
		return fmt.Errorf("DPDK's testpmd is not measured: %w (apt-get install dpdk-dev)", ErrNotInstalled)
	}
	return nil
}

// LaunchTestpmd starts DPDK's testpmd on the target by the af_xdp driver (copy mode, its own XDP program), without huge
// pages, with one core for the prompt and one that forwards: macswap for Reflect, rxonly for Drop.
func LaunchTestpmd(ns *netlab.NS, on Target) (*Process, error) {
	mode := "rxonly"
	if on.Task == Reflect {
		mode = "macswap"
	}
	prefix := fmt.Sprintf("gradnic%d", os.Getpid())
	cmd := exec.Command(testpmd,
		"--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--file-prefix", prefix, "--log-level", "lib.eal:error",
		"--lcores", fmt.Sprintf("0@0,1@%d", on.CPU), "--vdev", fmt.Sprintf("net_af_xdp0,iface=%s,start_queue=%d,queue_count=1", on.Interface, on.Queue),
		"--", "--forward-mode="+mode, "--nb-cores=1", "--total-num-mbufs=8192", "--no-mlockall", "--burst=64", "--txd=2048", "--rxd=2048", "--interactive")
	// Its folder for sockets and locks stays behind otherwise.
	p := &Process{name: "testpmd", cmd: cmd, after: func() error { return os.RemoveAll(filepath.Join("/var/run/dpdk", prefix)) }}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("testpmd: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("testpmd: %w", err)
	}
	cmd.Stderr = cmd.Stdout
	p.out = bufio.NewReader(stdout)
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start testpmd: %w", err)
	}
	patience := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer patience.Stop()
	said, err := readUntil(p.out, "testpmd> ")
	if err == nil {
		if _, err = io.WriteString(p.in, "start\n"); err == nil {
			said, err = readUntil(p.out, "testpmd> ")
		}
	}
	if err != nil {
		cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("testpmd did not start: %w: %s", err, ending(said)), cmd.Wait())
	}
	p.counts = p.testpmdCounts
	return p, nil
}

var testpmdTotals = regexp.MustCompile(`RX-packets: (\d+)[\s\S]*TX-packets: (\d+)\s+TX-dropped: (\d+)`)

// testpmdCounts asks for the statistics and ends it.
func (p *Process) testpmdCounts() (n Counts, err error) {
	if _, err := io.WriteString(p.in, "stop\nquit\n"); err != nil {
		return n, fmt.Errorf("stop testpmd: %w", err)
	}
	p.in.Close()
	text, err := io.ReadAll(p.out)
	if err != nil {
		return n, fmt.Errorf("read testpmd's counts: %w", err)
	}
	m := testpmdTotals.FindSubmatch(text)
	if m == nil {
		return n, fmt.Errorf("no counts in what testpmd said: %s", text)
	}
	for i, v := range []*uint64{&n.Received, &n.Returned, &n.Lost} {
		if *v, err = strconv.ParseUint(string(m[i+1]), 10, 64); err != nil {
			return n, fmt.Errorf("testpmd's counts: %w", err)
		}
	}
	return n, nil
}

// ending is the last of what it said: its help is long.
func ending(said string) string {
	const most = 300
	return said[max(0, len(said)-most):]
}

// readUntil reads up to and with an ending.
func readUntil(r *bufio.Reader, ending string) (string, error) {
	var text []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			return string(text), err
		}
		text = append(text, b)
		if len(text) >= len(ending) && string(text[len(text)-len(ending):]) == ending {
			return string(text), nil
		}
	}
}
