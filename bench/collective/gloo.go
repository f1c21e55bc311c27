package collective

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "embed" // the Python program

	"github.com/vishvananda/netlink"
)

//go:embed gloo.py
var glooProgram []byte

// python is Debian's, which has python3-torch; another Python on the PATH need not.
const python = "/usr/bin/python3"

// ErrNoTorch says that the yardstick is not installed.
var ErrNoTorch = errors.New("gloo is not measured: " + python + " has no torch (apt-get install python3-torch)")

// bridge makes the centre of the star a switch, for peers that talk to each other.
func (s *star) bridge() error {
	ports := make([]string, len(s.workers))
	for i := range ports {
		ports[i] = fmt.Sprint(nicIface, i)
	}
	return s.centre.Bridge("switch", s.link.MTU, ports...)
}

// switchAddress gives the switch an address, for a host that is at the centre.
func (s *star) switchAddress() error {
	nl := s.centre.Netlink()
	sw, err := nl.LinkByName("switch")
	if err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	addr, err := netlink.ParseAddr(nicIP.String() + "/24")
	if err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	if err := nl.AddrAdd(sw, addr); err != nil {
		return fmt.Errorf("switch: address: %w", err)
	}
	return nil
}

// haveTorch tells whether gloo can be measured.
func haveTorch(ctx context.Context, s *star) bool {
	return s.centre.Command(ctx, python, "-c", "import torch.distributed").Run() == nil
}

// gloo runs rounds all-reduces of n float32 over the star's links, and returns the time of the slowest rank of each. A
// wrong sum is an error. The star's centre must be a switch.
func (s *star) gloo(ctx context.Context, dir string, n, rounds int) ([]time.Duration, error) {
	got, err := s.glooSizes(ctx, dir, []int{n}, rounds)
	if err != nil {
		return nil, err
	}
	if got[0].wrong != 0 {
		return nil, fmt.Errorf("gloo: %d wrong elements", got[0].wrong)
	}
	slowest := make([]time.Duration, rounds)
	for k, sec := range got[0].seconds {
		slowest[k] = time.Duration(sec * float64(time.Second))
	}
	return slowest, nil
}

// glooSizes runs rounds all-reduces of each size, one rank a worker, and returns the time of the slowest rank of each
// round.
func (s *star) glooSizes(ctx context.Context, dir string, elements []int, rounds int) ([]batchTimes, error) {
	program := filepath.Join(dir, "gloo.py")
	if err := os.WriteFile(program, glooProgram, 0o644); err != nil {
		return nil, fmt.Errorf("gloo: %w", err)
	}
	var sizes []string
	for _, n := range elements {
		sizes = append(sizes, strconv.Itoa(n))
	}
	outs := make([]bytes.Buffer, len(s.workers))
	err := each(len(s.workers), func(i int) error {
		cmd := s.workers[i].Command(ctx, python, program, strconv.Itoa(i), strconv.Itoa(len(s.workers)), workerIP(0).String(),
			"29500", workerIface, strings.Join(sizes, ","), strconv.Itoa(rounds))
		cmd.Stdout = &outs[i]
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("gloo: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slowest := make([]batchTimes, len(elements))
	for i := range outs {
		var ranks []struct {
			Seconds []float64
			Wrong   int64
		}
		if err := json.Unmarshal(outs[i].Bytes(), &ranks); err != nil || len(ranks) != len(elements) {
			return nil, fmt.Errorf("gloo: rank %d said %q: %w", i, outs[i].String(), err)
		}
		for x, r := range ranks {
			if slowest[x].seconds == nil {
				slowest[x].seconds = make([]float64, rounds)
			}
			if len(r.Seconds) != rounds {
				return nil, fmt.Errorf("gloo: rank %d ran %d rounds of %d", i, len(r.Seconds), rounds)
			}
			slowest[x].wrong += r.Wrong
			for k, sec := range r.Seconds {
				slowest[x].seconds[k] = max(slowest[x].seconds[k], sec)
			}
		}
	}
	return slowest, nil
}
