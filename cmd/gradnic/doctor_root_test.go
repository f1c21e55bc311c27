package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"gradnic/internal/doctor"
)

// inNIC runs the binary in the NIC's namespace.
func (f *field) inNIC(t *testing.T, args ...string) result {
	t.Helper()
	cmd := f.nic.Command(t.Context(), f.binary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := f.nic.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// check is what the doctor says of one thing, and the status it ends with.
func (f *field) check(t *testing.T, subject, name string, args ...string) (doctor.Check, int) {
	t.Helper()
	r := f.inNIC(t, append([]string{"doctor", "-j"}, args...)...)
	var report doctor.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v: %s, %s", err, r.out, r.err)
	}
	if report.OK != (r.code == exitOK) {
		t.Errorf("ok is %v, status %d", report.OK, r.code)
	}
	for _, c := range report.Checks {
		if c.Subject == subject && c.Name == name {
			return c, r.code
		}
	}
	t.Fatalf("no check %s of %s in %s", name, subject, r.out)
	return doctor.Check{}, 0
}

// Each thing that is wrong with an interface is found, and the command that the doctor names mends it.
func TestDoctor(t *testing.T) {
	f := newField(t)
	shell := func(line string) {
		t.Helper()
		cmd := f.nic.Command(t.Context(), "sh", "-ec", line)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", line, err, out)
		}
	}
	f.inNIC(t, "doctor", "port0", "port1").want(t, exitOK, "ok       port1 xdp-mode        native\n")
	for name, c := range map[string]struct {
		check, breaks string
		status        doctor.Status
		args          []string
	}{
		"down":   {"link", "ip link set port0 down", doctor.Missing, nil},
		"no GRO": {"gro", "ethtool -K port0 gro off", doctor.Advice, nil},
		"IPv6":   {"ipv6", "sysctl -qw net.ipv6.conf.port0.disable_ipv6=0", doctor.Advice, nil},
		"MTU":    {"mtu", "ip link set port0 mtu 3500", doctor.Advice, nil},
		"member": {"link", "ip link add br0 type bridge; ip link set port0 master br0", doctor.Advice, nil},
	} {
		t.Run(name, func(t *testing.T) {
			shell(c.breaks)
			got, code := f.check(t, "port0", c.check, append(c.args, "port0")...)
			if got.Status != c.status || got.Why == "" || (code == exitOK) != (c.status != doctor.Missing) {
				t.Errorf("status %d: %+v", code, got)
			}
			mend := got.Mend
			if _, after, ok := strings.Cut(mend, ", or: "); ok {
				mend = after
			}
			shell(mend)
			// With the link up again the other end's carrier comes a moment later.
			within(t, "mended by "+mend, func() bool {
				got, code = f.check(t, "port0", c.check, append(c.args, "port0")...)
				return code == exitOK && (got.Status == doctor.OK || c.check == "mtu")
			})
		})
	}
	t.Run("somebody else's program", func(t *testing.T) {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "theirs", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 2), asm.Return(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		index, _, err := f.nic.Interface("port0")
		if err != nil {
			t.Fatal(err)
		}
		link, err := f.nic.Netlink().LinkByIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.nic.Do(func() error { return netlink.LinkSetXdpFdWithFlags(link, p.FD(), nl.XDP_FLAGS_DRV_MODE) }); err != nil {
			t.Fatal(err)
		}
		got, code := f.check(t, "port0", "xdp-program", "port0")
		if code != exitFailed || got.Status != doctor.Missing || !strings.Contains(got.Found, `"theirs"`) || !strings.HasSuffix(got.Mend, "ip link set dev port0 xdpdrv off") {
			t.Errorf("status %d: %+v", code, got)
		}
		_, mend, _ := strings.Cut(got.Mend, ", or: ")
		shell(mend)
		if got, code = f.check(t, "port0", "xdp-program", "port0"); code != exitOK || got.Status != doctor.OK {
			t.Errorf("status %d: %+v", code, got)
		}
	})
	t.Run("lanes", func(t *testing.T) {
		if got, code := f.check(t, "port0", "queues", "port0", "--lanes", "2"); code != exitFailed || got.Status != doctor.Missing {
			t.Errorf("status %d: %+v", code, got)
		}
	})
	t.Run("memory", func(t *testing.T) { // is what a NIC takes that is run so
		cmd, _ := f.start(t, "--frames", "512")
		var counters struct{ Frames struct{ Total uint64 } }
		r := f.gradnic(t, "show", "counters", "-j").want(t, exitOK, "total")
		if err := json.Unmarshal([]byte(r.out), &counters); err != nil {
			t.Fatal(err)
		}
		terminate(t, cmd)
		got, _ := f.check(t, doctor.Machine, "huge-pages", "port0", "port1", "--frames", "512", "--huge-pages")
		const perPage = 1024 // chunks of 2048 bytes
		want := fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", (counters.Frames.Total+perPage-1)/perPage)
		if got.Status == doctor.Missing && got.Mend != want || counters.Frames.Total < 2*512 {
			t.Errorf("%+v, want %s for %d frames", got, want, counters.Frames.Total)
		}
	})
	t.Run("bundle", f.testBundle)
}

// A bundle has what a running NIC shows, and without a NIC says that there is none.
func (f *field) testBundle(t *testing.T) {
	bundle := func() map[string]string {
		path := filepath.Join(t.TempDir(), "b.tar.gz")
		r := f.inNIC(t, "doctor", "port0", "--bundle", path, "--api", f.api)
		if r.code != exitOK || !strings.Contains(r.err, "written to ") {
			t.Errorf("status %d, %s", r.code, r.err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		z, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return files
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			_, name, _ := strings.Cut(h.Name, "/")
			files[name] = string(b)
		}
	}
	if s := bundle()["show/error.txt"]; !strings.Contains(s, "no NIC answers") {
		t.Errorf("%q", s)
	}
	f.start(t)
	f.gradnic(t, "install", "job", "train", "--workers", "2", "--elements", "64").want(t, exitOK, "installed")
	files := bundle()
	for name, says := range map[string]string{
		"doctor.json": `"a gradnic runs`, "version.json": "{", "facts.txt": "== interface port0", "show/nic.json": "10.50.0.254", "show/jobs.json": `"train"`,
		"show/ports.json": `"native"`, "show/lanes.json": "busy_ns", "show/stages.json": "timed_ns", "show/drops.json": "kernel", "show/counters.json": "fault",
	} {
		if name == "doctor.json" {
			says = "a gradnic runs on it"
		}
		if !strings.Contains(files[name], says) {
			t.Errorf("%s has no %q: %s", name, says, files[name])
		}
	}
	if _, there := files["show/error.txt"]; there {
		t.Error(files["show/error.txt"])
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if len(host) > 3 && strings.Contains(text, host) || strings.Contains(text, f.api) {
			t.Errorf("%s names this machine", name)
		}
	}
}
