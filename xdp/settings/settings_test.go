package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

const childEnv = "GRADNIC_TEST_SETTINGS_CHILD"

// TestMain runs a process that sets a netdev and is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if _, err := Apply(dir, "p", Want{Queues: 2, Features: map[string]bool{"rx-gro": true, "tx-checksum-ip-generic": false}}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("applied")
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

// lab is a veth of four queues, of which one is in use.
func lab(t *testing.T) (*netlab.Lab, *netlab.NS) {
	l := netlabtest.New(t, "set")
	ns, peer := netlabtest.Namespace(t, l, "nic"), netlabtest.Namespace(t, l, "peer")
	netlabtest.Veth(t, l, netlab.End{NS: ns, Name: "p", Queues: 4}, netlab.End{NS: peer, Name: "w", Queues: 4})
	for _, e := range []struct {
		ns   *netlab.NS
		name string
	}{{ns, "p"}, {peer, "w"}} {
		if err := e.ns.Do(func() error {
			d, err := openDevice(e.name)
			if err != nil {
				return err
			}
			defer d.close()
			if err := d.set(kindChannels, "", values{"rx": 1, "tx": 1}); err != nil {
				return err
			}
			return d.set(kindFeature, "rx-gro", values{"on": 0})
		}); err != nil {
			t.Fatal(err)
		}
	}
	return l, ns
}

// state reads all that can be changed on a veth.
func state(t *testing.T, ns *netlab.NS) (all map[string]values) {
	t.Helper()
	if err := ns.Do(func() error {
		d, err := openDevice("p")
		if err != nil {
			return err
		}
		defer d.close()
		all = map[string]values{}
		if all[kindChannels], err = d.get(kindChannels, ""); err != nil {
			return err
		}
		features, err := d.eth.FeaturesWithState("p")
		if err != nil {
			return err
		}
		for name, f := range features {
			all[name] = values{"active": bit(f.Active), "requested": bit(f.Requested)}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func same(a, b map[string]values) bool {
	return maps.EqualFunc(a, b, func(x, y values) bool { return maps.Equal(x, y) })
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var want = Want{Queues: 3, Features: map[string]bool{"rx-gro": true, "tx-checksum-ip-generic": false, "tx-tcp-segmentation": false}}

// TestApplyUndo: what a real driver takes is set, recorded before, and set back exactly.
func TestApplyUndo(t *testing.T) {
	_, ns := lab(t)
	dir := t.TempDir()
	before := state(t, ns)
	var a *Applied
	if err := ns.Do(func() (err error) { a, err = Apply(dir, "p", want); return err }); err != nil {
		t.Fatal(err)
	}
	now := state(t, ns)
	if now[kindChannels]["rx"] != 3 || now["rx-gro"]["active"] != 1 || now["tx-checksum-ip-generic"]["active"] != 0 {
		t.Fatalf("%v", now)
	}
	if len(a.Changed) != 4 || len(files(t, dir)) != 1 {
		t.Fatalf("%q, files %q", a.Changed, files(t, dir))
	}
	var kept []string
	if err := ns.Do(func() (err error) { kept, err = a.Undo(); return err }); err != nil || len(kept) != 0 {
		t.Fatal(kept, err)
	}
	if after := state(t, ns); !same(before, after) {
		t.Fatalf("%v, was %v", after, before)
	}
	if f := files(t, dir); len(f) != 0 {
		t.Fatalf("files %q are left", f)
	}
	if kept, err := a.Undo(); err != nil || len(kept) != 0 { // idempotent
		t.Fatal(kept, err)
	}
}

// TestApplyNothing: what is as it is wanted leaves no file.
func TestApplyNothing(t *testing.T) {
	_, ns := lab(t)
	dir := filepath.Join(t.TempDir(), "never")
	err := ns.Do(func() error {
		for _, w := range []Want{{}, {Queues: 1, Features: map[string]bool{"rx-gro": false}}} {
			a, err := Apply(dir, "p", w)
			if err != nil {
				return err
			}
			if len(a.Changed) != 0 {
				return fmt.Errorf("%q", a.Changed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if f := files(t, dir); len(f) != 0 {
		t.Fatalf("files %q", f)
	}
}

// TestFeaturesByEthtoolsNames: what ethtool prints and takes is taken, and set back under the kernel's name.
func TestFeaturesByEthtoolsNames(t *testing.T) {
	_, ns := lab(t)
	dir := t.TempDir()
	before := state(t, ns)
	for _, name := range []string{"gro", "generic-receive-offload", "rx-gro"} {
		var a *Applied
		if err := ns.Do(func() (err error) {
			a, err = Apply(dir, "p", Want{Features: map[string]bool{name: true}})
			return err
		}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if same(before, state(t, ns)) {
			t.Errorf("%s changed nothing", name)
		}
		if err := ns.Do(func() error { _, err := a.Undo(); return err }); err != nil {
			t.Fatal(err)
		}
		if after := state(t, ns); !same(before, after) {
			t.Errorf("%s: %v, was %v", name, after, before)
		}
	}
}

// The names that ethtool's stand for are this kernel's; ethtool's are not.
func TestKernelFeatures(t *testing.T) {
	_, ns := lab(t)
	err := ns.Do(func() error {
		d, err := openDevice("p")
		if err != nil {
			return err
		}
		defer d.close()
		have, err := d.eth.FeaturesWithState("p")
		if err != nil {
			return err
		}
		for ethtools, kernels := range kernelFeature {
			if _, ok := have[kernels]; !ok {
				t.Errorf("%s: the kernel has no %s", ethtools, kernels)
			}
			if _, ok := have[ethtools]; ok {
				t.Errorf("%s is the kernel's name of another feature", ethtools)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestApplyRefused: what a driver refuses is named, and what was changed before is set back.
func TestApplyRefused(t *testing.T) {
	_, ns := lab(t)
	dir := t.TempDir()
	before := state(t, ns)
	for name, w := range map[string]Want{
		"9 queues: invalid argument (ethtool -l p ":                                   {Queues: 9},
		"rings of 512 descriptors to receive: operation not supported (ethtool -g p ": {Queues: 2, RxRing: 512},
		"feature no-such-feature":                                                     {Queues: 2, Features: map[string]bool{"no-such-feature": true}},
		"feature rx-gro: it is rx-gro, which is to be on and off":                     {Queues: 2, Features: map[string]bool{"rx-gro": true, "gro": false}},
		"feature netns-local":                                                         {Queues: 2, Features: map[string]bool{"netns-local": true}},
	} {
		err := ns.Do(func() error { _, err := Apply(dir, "p", w); return err })
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if after := state(t, ns); !same(before, after) {
			t.Errorf("%s: %v, was %v", name, after, before)
		}
		if f := files(t, dir); len(f) != 0 {
			t.Errorf("%s: files %q are left", name, f)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, none := range []string{"/proc/none", file} { // where no file can be made, and what is no directory
		err := ns.Do(func() error { _, err := Apply(none, "p", want); return err })
		if err == nil || !strings.Contains(err.Error(), "("+EnvDir+" names a directory for it)") || strings.Contains(err.Error(), "ethtool") {
			t.Errorf("no place for the state file: %v", err)
		}
	}
	if after := state(t, ns); !same(before, after) {
		t.Errorf("changed without a state file: %v, was %v", after, before)
	}
	if err := ns.Do(func() error { _, err := Apply(dir, "nosuch", want); return err }); err == nil {
		t.Error("an interface that is not there")
	}
	for range 2 { // hints that veth does not have
		err := ns.Do(func() error {
			a, err := Apply(dir, "p", Want{HashPorts: true, Rules: someRules(2)})
			if err == nil && (len(a.Skipped) != 2 || len(a.Changed) != 0) {
				return fmt.Errorf("%+v", a)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestKeepOthers: what somebody else has changed meanwhile is left, and said.
func TestKeepOthers(t *testing.T) {
	_, ns := lab(t)
	err := ns.Do(func() error {
		a, err := Apply(t.TempDir(), "p", want)
		if err != nil {
			return err
		}
		d, err := openDevice("p")
		if err != nil {
			return err
		}
		defer d.close()
		if err := d.set(kindChannels, "", values{"rx": 4, "tx": 4}); err != nil {
			return err
		}
		kept, err := a.Undo()
		if err != nil {
			return err
		}
		if len(kept) != 1 || !strings.Contains(kept[0], "channels is rx=4 tx=4, neither what it was (rx=1 tx=1)") {
			return fmt.Errorf("kept %q", kept)
		}
		if v, _ := d.get(kindChannels, ""); v["rx"] != 4 {
			return fmt.Errorf("%v", v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// killed runs a process that sets p, and kills it.
func killed(t *testing.T, ns *netlab.NS, dir string, whileItLives func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, _ := out.Read(buf)
	if string(buf[:n]) != "applied\n" {
		t.Fatalf("child: %q, %v", buf[:n], cmd.Wait())
	}
	whileItLives()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestKilled: after kill -9 the next start, or Restore, sets back what was left; while the process lives neither does.
func TestKilled(t *testing.T) {
	_, ns := lab(t)
	before := state(t, ns)
	for _, next := range []string{"start", "restore", "restore one"} {
		dir := t.TempDir()
		killed(t, ns, dir, func() {
			var inUse *InUseError
			if err := ns.Do(func() error { _, err := Apply(dir, "p", Want{}); return err }); !errors.As(err, &inUse) {
				t.Fatalf("%s: %v", next, err)
			}
			if err := ns.Do(func() error {
				r, err := Restore(dir, "")
				if err == nil && (len(r) != 1 || !strings.Contains(r[0].Skipped, "runs on it")) {
					return fmt.Errorf("%+v", r)
				}
				return err
			}); err != nil {
				t.Fatalf("%s: %v", next, err)
			}
		})
		if same(before, state(t, ns)) {
			t.Fatal("the child has changed nothing")
		}
		// From another namespace nothing is done.
		r, err := Restore(dir, "")
		if err != nil || len(r) != 1 || !strings.Contains(r[0].Skipped, "another network namespace") {
			t.Fatalf("%s: %+v, %v", next, r, err)
		}
		if err := ns.Do(func() error {
			switch next {
			case "start":
				a, err := Apply(dir, "p", Want{})
				if err == nil && (len(a.Restored) != 3 || len(a.Kept)+len(a.Changed) != 0) {
					return fmt.Errorf("%+v", a)
				}
				return err
			case "restore one":
				if r, err := Restore(dir, "other"); err != nil || len(r) != 0 {
					return fmt.Errorf("%+v, %v", r, err)
				}
				d, err := openDevice("p")
				if err != nil {
					return err
				}
				defer d.close()
				if err := d.set(kindFeature, "rx-gro", values{"on": 0}); err != nil { // somebody else was quicker
					return err
				}
				r, err := Restore(dir, "p")
				if err == nil && (len(r) != 1 || r[0].Err != nil || !slices.Equal(r[0].Undone, []string{
					"feature tx-checksum-ip-generic: off, was on", "channels: rx=2 tx=2, was rx=1 tx=1",
				})) {
					return fmt.Errorf("%+v", r)
				}
				return err
			}
			_, err := Restore(dir, "")
			return err
		}); err != nil {
			t.Fatalf("%s: %v", next, err)
		}
		if after := state(t, ns); !same(before, after) {
			t.Fatalf("%s: %v, was %v", next, after, before)
		}
		if f := files(t, dir); len(f) != 0 {
			t.Fatalf("%s: files %q are left", next, f)
		}
	}
}

// TestGone: a netdev that was deleted, or made again under its name, has nothing to be set back, and a file of a namespace
// that is gone goes too.
func TestGone(t *testing.T) {
	l, ns := lab(t)
	remake := func() {
		link, err := ns.Netlink().LinkByName("p")
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.Netlink().LinkDel(link); err != nil {
			t.Fatal(err)
		}
	}
	for _, again := range []bool{false, true} {
		dir := t.TempDir()
		var a *Applied
		if err := ns.Do(func() (err error) { a, err = Apply(dir, "p", want); return err }); err != nil {
			t.Fatal(err)
		}
		remake()
		if again {
			netlabtest.Veth(t, l, netlab.End{NS: ns, Name: "p", Queues: 3}, netlab.End{NS: ns, Name: "w2", Queues: 3})
		}
		if err := ns.Do(func() error { _, err := a.Undo(); return err }); err != nil {
			t.Fatal(err)
		}
		if again && state(t, ns)[kindChannels]["rx"] != 3 {
			t.Fatal("the new netdev was changed")
		}
		if f := files(t, dir); len(f) != 0 {
			t.Fatalf("files %q are left", f)
		}
		if !again {
			netlabtest.Veth(t, l, netlab.End{NS: ns, Name: "p", Queues: 4}, netlab.End{NS: ns, Name: "w1", Queues: 4})
			if err := ns.Do(func() error {
				d, err := openDevice("p")
				if err != nil {
					return err
				}
				defer d.close()
				return d.set(kindChannels, "", values{"rx": 1, "tx": 1})
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	r := &record{Schema: 1, Interface: "p", Namespace: "4-1", PID: 1, Start: 0, path: fileOf(dir, "4-1", "p")}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(dir, ""); err != nil || len(files(t, dir)) != 0 {
		t.Fatalf("%v, %q", err, files(t, dir))
	}
	broken := filepath.Join(dir, "x"+suffix)
	if err := os.WriteFile(broken, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err := Restore(dir, ""); err != nil || len(r) != 1 || r[0].Err == nil {
		t.Fatalf("%+v, %v", r, err)
	}
}
