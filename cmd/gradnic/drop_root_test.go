package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/xdp/settings"
)

// capabilities are those of all threads of a process; an error when threads differ or have others than are effective.
func capabilities(pid int) (caps string, noNewPrivs bool, err error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(names) < 2 {
		return "", false, fmt.Errorf("threads %q: %v", names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", false, err
		}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			switch key {
			case "CapEff", "CapPrm":
				if caps != "" && caps != value {
					return "", false, fmt.Errorf("%s: %s %s, elsewhere %s", name, key, value, caps)
				}
				caps = value
			case "NoNewPrivs":
				noNewPrivs = value == "1"
			}
		}
	}
	return caps, noNewPrivs, nil
}

// installOne gives the NIC a job of one worker, rank 0 of the field.
func (f *field) installOne(t *testing.T) {
	t.Helper()
	f.gradnic(t, "install", "job", "one", "--workers", "1", "--elements", "64",
		"--member", "0=02:00:00:00:01:00,10.50.0.1").want(t, exitOK, "job one installed\n")
}

func (f *field) features(t *testing.T) map[string]bool {
	t.Helper()
	on, err := f.nic.Features("port0")
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// restore runs the verb in the NIC's namespace.
func (f *field) restore(t *testing.T, args ...string) result {
	t.Helper()
	return f.inNIC(t, append([]string{"restore"}, args...)...)
}

func terminate(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

// TestDropAndRestore runs the built binary with each level of capabilities.
func TestDropAndRestore(t *testing.T) {
	f := newField(t)
	state := t.TempDir()
	t.Setenv(settings.EnvDir, state)
	feature := "tx-checksum-ip-generic"
	before := f.features(t)
	if !before[feature] {
		t.Fatalf("veth has no %s", feature)
	}
	stateFiles := func() []string {
		names, _ := filepath.Glob(filepath.Join(state, "*"))
		return names
	}

	t.Run("all", func(t *testing.T) {
		cmd, _ := f.start(t, "--drop", "all", "--feature", feature+"=off")
		caps, nnp, err := capabilities(cmd.Process.Pid)
		if err != nil || caps != "0000000000000000" || !nnp {
			t.Fatalf("capabilities %s, no_new_privs %t, %v", caps, nnp, err)
		}
		f.installOne(t)
		f.send(t, 0, 1, 9)
		if got := f.result(t, 0, 1); got != 9 {
			t.Fatalf("got %d", got)
		}
		f.gradnic(t, "show", "ports").want(t, exitOK, "port0")
		terminate(t, cmd)
		if with := f.xdp(t); len(with) != 0 {
			t.Errorf("XDP programs are left on %v", with)
		}
		// It could not set back; the service's ExecStopPost does.
		if f.features(t)[feature] || len(stateFiles()) != 2 {
			t.Fatalf("%s is on again, or the state files are %q", feature, stateFiles())
		}
		f.restore(t, "--port", "port0").want(t, exitOK, "port0 set back: feature "+feature)
		if !f.features(t)[feature] || len(stateFiles()) != 1 {
			t.Fatalf("%s is off, or the state files are %q", feature, stateFiles())
		}
		f.restore(t).want(t, exitOK, "port1 set back")
		f.restore(t).want(t, exitOK, "nothing to set back\n")
	})

	t.Run("killed", func(t *testing.T) {
		cmd, _ := f.start(t, "--drop", "none", "--feature", feature+"=off", "--feature", "rx-gro=off")
		if caps, _, err := capabilities(cmd.Process.Pid); err != nil || caps == "0000008000003000" || caps == "0000000000000000" {
			t.Fatalf("capabilities %s, %v", caps, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if on := f.features(t); on[feature] {
			t.Fatal("nobody was to set it back yet")
		}
		cmd, _ = f.start(t) // the next start does
		if !f.features(t)[feature] {
			t.Fatal("the next start has not set it back")
		}
		terminate(t, cmd)
		for name, on := range f.features(t) {
			if before[name] != on {
				t.Errorf("%s is %t, was %t", name, on, before[name])
			}
		}
	})

	t.Run("modes", f.testModes)

	t.Run("usage", func(t *testing.T) {
		for flag, value := range map[string]string{"--drop": "some", "--feature": "rx-gro", "--queues": "-1"} {
			f.gradnic(t, "run", "--ip", "10.50.0.254", "--port", "port0", flag, value).want(t, exitUsage, "")
		}
	})

	t.Run("healing", func(t *testing.T) {
		cmd, _ := f.start(t, "--feature", feature+"=off") // healing is the default
		caps, nnp, err := capabilities(cmd.Process.Pid)
		if err != nil || caps != "0000008000003000" || !nnp {
			t.Fatalf("capabilities %s, no_new_privs %t, %v", caps, nnp, err)
		}
		if f.features(t)[feature] || len(stateFiles()) != 2 {
			t.Fatalf("%s is not off, or the state files are %q", feature, stateFiles())
		}
		f.restore(t).want(t, exitOK, "runs on it")
		f.installOne(t)
		f.send(t, 0, 1, 9)
		if got := f.result(t, 0, 1); got != 9 {
			t.Fatalf("got %d", got)
		}
		// The port is made again, and heals with what is left.
		f.remake(t, 0)
		within(t, "the port is up again", func() bool {
			r := f.gradnic(t, "show", "ports").want(t, exitOK, "port0")
			return strings.Contains(r.out, "up ") && !strings.Contains(r.out, "down") && !strings.Contains(r.out, "broken")
		})
		f.send(t, 0, 2, 8)
		if got := f.result(t, 0, 2); got != 8 {
			t.Fatalf("got %d after healing", got)
		}
		if f.features(t)[feature] {
			t.Fatalf("%s is on at the netdev that was made again", feature)
		}
		terminate(t, cmd)
		if !f.features(t)[feature] || len(stateFiles()) != 0 {
			t.Fatalf("%s is left off, or state files %q are left", feature, stateFiles())
		}
	})
}

// remake deletes a worker's veth and makes it again, with a new socket of the worker.
func (f *field) remake(t *testing.T, rank int) {
	t.Helper()
	name := fmt.Sprintf("port%d", rank)
	link, err := f.nic.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.nic.Netlink().LinkDel(link); err != nil {
		t.Fatal(err)
	}
	within(t, "the port is said to be down", func() bool {
		return strings.Contains(f.gradnic(t, "show", "ports").want(t, exitOK, name).out, "does not exist")
	})
	lab := netlabtest.New(t, "clib")
	ns := netlabtest.Namespace(t, lab, "again")
	ip := fmt.Sprintf("10.50.0.%d", 1+rank)
	netlabtest.Veth(t, lab, netlab.End{NS: f.nic, Name: name},
		netlab.End{NS: ns, Name: "eth0", MAC: fmt.Sprintf("02:00:00:00:01:%02x", rank), Addr: ip + "/24"})
	if err := ns.Do(func() (err error) {
		f.workers[rank], err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip), Port: 4000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.workers[rank].Close() })
	time.Sleep(10 * time.Millisecond)
}
