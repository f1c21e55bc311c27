package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/internal/allreduce"
)

func TestNativeWorkerUsage(t *testing.T) {
	for line, says := range map[string]string{
		"worker --protocol x":                                                        "legal are switchml and native",
		"worker --protocol native":                                                   "--nic is missing",
		"worker --protocol native --nic 10.0.0.9":                                    "--ip is missing",
		"worker --protocol native --nic 10.0.0.9 --ip 10.0.0.1":                      "nothing to reduce",
		"worker --protocol native --nic 10.0.0.9 --ip 10.0.0.1 --controller x":       "not for protocol native",
		"worker --protocol native --nic 10.0.0.9 --ip 10.0.0.1 --random 5 --op half": "legal are sum, mean, min, max",
		"worker --protocol native --nic 10.0.0.9 --ip 10.0.0.1 --random 5 --order x": "legal are arrival, ranked",
		"worker --protocol native --nic 10.0.0.9 --ip 10.0.0.1 --random 5 --type f":  "legal are int32",
		"demo --type int7":              "legal are all",
		"demo --type int8 --shuffles 0": "at least 1",
		"demo --workers 0":              "--workers 0: at least 1",
		"demo --elements 0":             "--elements 0: at least 1",
		"demo --iters 0":                "--iters 0: at least 1",
	} {
		t.Run(line, func(t *testing.T) {
			gradnic(t, "", strings.Fields(line)...).want(t, exitUsage, says)
		})
	}
}

// The built binary as NIC, as who installs a job, and as three workers of the native protocol.
func TestNativeBinary(t *testing.T) {
	dir := t.TempDir()
	api := filepath.Join(dir, "api.sock")
	const workers = 3
	binary, spaces := runTeam(t, "clin", workers, "--api", api)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()

	keys := filepath.Join(dir, "job.keys")
	for number, job := range []string{"--type float32 --order ranked", "--type int8 --op max --multicast 239.1.1.1 --elements 1000",
		"--type float32 --codec bfp16 --order ranked", "--type float32 --codec topk --order ranked", "--type bfp16 --order ranked",
		"--type int32 --keys " + keys} {
		name := fmt.Sprint("job", number)
		install := append([]string{"install", "--api", api, "job", name, "--workers", "3", "--protocol", "native"}, strings.Fields(job)...)
		for range 2 { // the second time it is there
			if out, err := exec.CommandContext(ctx, binary, install...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", install, err, out)
			}
		}
		var g sync.WaitGroup
		for r := range workers {
			g.Go(func() {
				args := fmt.Sprintf("worker --protocol native --nic 10.50.0.254 --job %d --rank %d --ip 10.50.0.%d --random 0,1,10000 --iters 2 --check --deadline 20s -j --output %s", number+1, r, r+1, filepath.Join(dir, "sum{rank}.npy"))
				if strings.Contains(job, "--keys") {
					args += " --keys " + keys
				}
				cmd := spaces[r].Command(ctx, binary, strings.Fields(args)...)
				var stdout, stderr strings.Builder
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := spaces[r].Start(cmd); err != nil {
					t.Error(err)
					return
				}
				err := cmd.Wait()
				var report allreduce.NativeReport
				if jerr := json.Unmarshal([]byte(stdout.String()), &report); err != nil || jerr != nil || !report.OK || len(report.Rows) != 3 {
					t.Errorf("rank %d: %v %v\n%s%s", r, err, jerr, stdout.String(), stderr.String())
					return
				}
				for _, row := range report.Rows {
					if row.Wrong != 0 || row.Bound != 0 {
						t.Errorf("rank %d: %+v", r, row)
					}
				}
			})
		}
		g.Wait()
		first, err := os.ReadFile(filepath.Join(dir, "sum0.npy"))
		if err != nil {
			t.Fatal(err)
		}
		for r := range workers { // in order of rank, or where order makes no difference: the same bits
			if sum, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("sum%d.npy", r))); err != nil || !bytes.Equal(sum, first) {
				t.Errorf("%s: rank %d's file is not rank 0's: %v", name, r, err)
			}
		}
		out, err := exec.CommandContext(ctx, binary, "show", "--api", api, "job", name, "-j").CombinedOutput()
		var doc struct {
			Job struct {
				Protocol string `json:"protocol"`
				Joined   int    `json:"joined"`
				Native   struct {
					State  string `json:"state"`
					Number int    `json:"number"`
				} `json:"native"`
			} `json:"job"`
		}
		j := &doc.Job
		if err != nil || json.Unmarshal(out, &doc) != nil || j.Protocol != "native" || j.Joined != workers || j.Native.State != "ready" || j.Native.Number != number+1 {
			t.Errorf("show: %v\n%s", err, out)
		}
	}
}
