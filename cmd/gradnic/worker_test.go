package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/internal/npy"
)

func TestWorkerUsage(t *testing.T) {
	for line, says := range map[string]string{
		"worker":                                         "--controller is missing",
		"worker --controller x":                          "--ip is missing",
		"worker --controller x --ip 1.2.3":               "--ip",
		"worker --controller x --ip 10.0.0.1":            "nothing to reduce",
		"worker --controller x --ip 10.0.0.1 --random 5": "0 workers: legal are 1 to 32",
		"worker --controller x --ip 10.0.0.1 --random 5 --workers 2 --rank 2":                    "rank 2 of 2 workers",
		"worker --controller x --ip 10.0.0.1 --random 5 --workers 2 --elements 7":                "legal are 64 and 256",
		"worker --controller x --ip 10.0.0.1 --workers 2 --random 5 --input a":                   "exclude each other",
		"worker --controller x --ip 10.0.0.1 --workers 2 --check --input a":                      "{rank}",
		"worker --controller x --ip 10.0.0.1 --workers 2 --random 5 --type f64":                  "legal are int32, float32",
		"worker --controller x --ip 10.0.0.1 --workers 2 --random 5 --threads 2 --outstanding 3": "as many for each thread",
	} {
		t.Run(line, func(t *testing.T) {
			gradnic(t, "", strings.Fields(line)...).want(t, exitUsage, says)
		})
	}
}

func TestControllerAddress(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:50099", "10.0.0.1:7": "10.0.0.1:7", "nic": "nic:50099", "nic:7": "nic:7",
		"::1": "[::1]:50099", "[::1]": "[::1]:50099", "[::1]:7": "[::1]:7", "unix:///a/b": "unix:///a/b", "unix:/a": "unix:/a",
	} {
		if got := controllerAddress(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// runTeam runs the built binary as NIC, and makes a namespace for each of its workers, whose addresses are 10.50.0.1 and up. The NIC
// is at 10.50.0.254; at the test's end it must stop well when it is asked to.
func runTeam(t *testing.T, prefix string, workers int, args ...string) (binary string, spaces []*netlab.NS) {
	t.Helper()
	lab := netlabtest.New(t, prefix)
	binary = built.Path(t)
	nicNS := netlabtest.Namespace(t, lab, "nic")
	args = append([]string{"run", "--ip", "10.50.0.254"}, args...)
	for r := range workers {
		port := fmt.Sprintf("p%d", r)
		ns := netlabtest.Namespace(t, lab, fmt.Sprintf("w%d", r))
		netlabtest.Veth(t, lab, netlab.End{NS: ns, Name: "eth0", Addr: fmt.Sprintf("10.50.0.%d/24", r+1)}, netlab.End{NS: nicNS, Name: port})
		spaces = append(spaces, ns)
		args = append(args, "--port", port)
	}
	nic, _, _ := launch(t, nicNS, binary, args...)
	t.Cleanup(func() {
		_ = nic.Process.Signal(os.Interrupt)
		if err := nic.Wait(); err != nil {
			t.Errorf("gradnic run: %v", err)
		}
	})
	return binary, spaces
}

// The built binary as NIC and as three workers, each in a namespace of its own.
func TestWorkerBinary(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "switchml.sock")
	const workers = 3
	binary, spaces := runTeam(t, "cliw", workers, "--api", filepath.Join(dir, "api.sock"), "--switchml", "unix:"+socket)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()

	all := func(t *testing.T, more ...string) (out [workers]result) {
		var g sync.WaitGroup
		for r := range workers {
			g.Go(func() {
				more := slices.Clone(more)
				for i := range more {
					if more[i] == "{rank}" {
						more[i] = fmt.Sprint(r)
					}
				}
				cmd := spaces[r].Command(ctx, binary, append([]string{"worker", "--controller", "unix://" + socket, "--deadline", "20s",
					"--rank", fmt.Sprint(r), "--workers", fmt.Sprint(workers), "--ip", fmt.Sprintf("10.50.0.%d", r+1)}, more...)...)
				var o, e strings.Builder
				cmd.Stdout, cmd.Stderr = &o, &e
				_ = cmd.Run() // the status is looked at by the caller
				out[r] = result{cmd.ProcessState.ExitCode(), o.String(), e.String()}
			})
		}
		g.Wait()
		return out
	}
	t.Run("random", func(t *testing.T) {
		for r, got := range all(t, "--random", "1000,100000", "--type", "int32", "--elements", "64", "--check", "-j") {
			got.want(t, exitOK, `"ok":true`)
			var doc struct {
				Rank int
				Rows []struct {
					Count, Wrong int
					Packets      uint64
				}
			}
			if err := json.Unmarshal([]byte(got.out), &doc); err != nil || doc.Rank != r || len(doc.Rows) != 2 || doc.Rows[1].Count != 100000 ||
				doc.Rows[1].Wrong != 0 || doc.Rows[1].Packets != 5*1563 {
				t.Errorf("rank %d: %v: %s", r, err, got.out)
			}
		}
	})
	t.Run("files and threads", func(t *testing.T) {
		for r := range workers {
			v := make([]float32, 5000)
			for i := range v {
				v[i] = float32(r + i)
			}
			if err := npy.Save(filepath.Join(dir, fmt.Sprintf("g%d.npy", r)), v); err != nil {
				t.Fatal(err)
			}
		}
		for r, got := range all(t, "--input", filepath.Join(dir, "g{rank}.npy"), "--threads", "2", "--check", "--output", filepath.Join(dir, "sum.npy")) {
			got.want(t, exitOK, "       20000          5000     float     sum ")
			if !strings.Contains(got.out, "largest error") {
				t.Errorf("rank %d: %s", r, got.out)
			}
		}
		sum, err := npy.Load[float32](filepath.Join(dir, "sum.npy"))
		if err != nil || len(sum) != 5000 || sum[4999] < 3*4999+2.9 || sum[4999] > 3*4999+3.1 {
			t.Errorf("sum: %v", err)
		}
	})
	t.Run("a sum that is wrong", func(t *testing.T) {
		// Each rank takes another seed, and so checks against arrays that the others do not have.
		for r, got := range all(t, "--random", "500", "--seed", "{rank}", "--check") {
			if got.code != exitFailed || !strings.Contains(got.err, "elements of the sums are wrong") || !strings.Contains(got.out, "busbw") {
				t.Errorf("rank %d: status %d, %q, %q", r, got.code, got.err, got.out)
			}
		}
	})
}
