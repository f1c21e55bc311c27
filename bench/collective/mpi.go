package collective

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "embed" // the Python program
)

//go:embed mpi.py
var mpiProgram []byte

// ErrNoMPI says that the yardstick is not installed.
var ErrNoMPI = errors.New("MPI is not measured: no mpirun, or " + python + " has no mpi4py (apt-get install openmpi-bin python3-mpi4py)")

func haveMPI(ctx context.Context) bool {
	if _, err := exec.LookPath("mpirun"); err != nil {
		return false
	}
	return exec.CommandContext(ctx, python, "-c", "import mpi4py, numpy").Run() == nil
}

// batchTimes is what a program that runs all sizes by itself measured.
type batchTimes struct {
	seconds []float64
	wrong   int64
}

// mpi runs the sizes over the star's links, one rank a worker, by Open MPI's TCP transport. Its daemons are started in
// the workers' namespaces instead of on hosts.
func (s *star) mpi(ctx context.Context, dir string, elements []int, rounds int) (out, in []batchTimes, err error) {
	program, agent := filepath.Join(dir, "mpi.py"), filepath.Join(dir, "agent.sh")
	var script strings.Builder
	script.WriteString("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
	var hosts []string
	for i, ns := range s.workers {
		fmt.Fprintf(&script, "%v) exec nsenter --net=%s sh -c \"$*\" ;;\n", workerIP(i), ns.Path())
		hosts = append(hosts, workerIP(i).String()+":1")
	}
	script.WriteString("esac\nexit 1\n")
	if err := errors.Join(os.WriteFile(program, mpiProgram, 0o644), os.WriteFile(agent, []byte(script.String()), 0o755)); err != nil {
		return nil, nil, fmt.Errorf("mpi: %w", err)
	}
	var sizes []string
	for _, n := range elements {
		sizes = append(sizes, strconv.Itoa(n))
	}
	subnet := workerIP(0).String()
	subnet = subnet[:strings.LastIndex(subnet, ".")] + ".0/24"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := s.workers[0].Command(ctx, "mpirun", "--allow-run-as-root", "-np", strconv.Itoa(len(s.workers)), "--host", strings.Join(hosts, ","),
		"--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "oob_tcp_if_include", subnet, "--mca", "btl_tcp_if_include", subnet,
		"--mca", "mpi_yield_when_idle", "1", "--bind-to", "none", python, program, strings.Join(sizes, ","), strconv.Itoa(rounds))
	cmd.WaitDelay = 3 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("mpi: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var got []struct {
		Elements int
		Out, In  struct {
			Seconds []float64
			Wrong   int64
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || len(got) != len(elements) {
		return nil, nil, fmt.Errorf("mpi said %q: %w", stdout.String(), err)
	}
	for _, g := range got {
		out = append(out, batchTimes{g.Out.Seconds, g.Out.Wrong})
		in = append(in, batchTimes{g.In.Seconds, g.In.Wrong})
	}
	return out, in, nil
}
