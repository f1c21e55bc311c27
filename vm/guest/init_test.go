//go:build vm

package guest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

var sockets = flag.String("sockets", "", "the tests of xdp to run, a regular expression; none when empty")

// TestMain is the init of a virtual machine. It never returns: the kernel panics when its init does.
func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "these tests are the init of a virtual machine: make test-vm")
		os.Exit(2)
	}
	flag.Parse()
	err := prepare()
	if err == nil {
		err = errors.Join(runSockets(), runOwn(m))
	}
	if err != nil {
		fmt.Println("gradnic-vm:", err)
	} else {
		fmt.Println("gradnic-vm: all passed")
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("gradnic-vm: power off:", err)
	}
	select {}
}

func prepare() error {
	for _, m := range []struct{ fs, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"bpf", "/sys/fs/bpf"},
	} {
		if err := unix.Mount(m.fs, m.at, m.fs, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	// What the kernel says on its own (router solicitations and the like) would be counted as received.
	for _, which := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil {
			return fmt.Errorf("turn IPv6 off: %w", err)
		}
	}
	list, err := filepath.Glob("/modules/*.ko")
	if err != nil || len(list) == 0 {
		return fmt.Errorf("no modules: %w", err)
	}
	slices.Sort(list) // numbered in the order in which they need each other
	for _, path := range list {
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// runSockets runs xdp's own tests, on veth pairs in namespaces.
func runSockets() error {
	if *sockets == "" {
		return nil
	}
	c := exec.Command("/xdp.test", "-test.v", "-test.timeout=15m", "-test.run="+*sockets)
	c.Env = append(os.Environ(), "HOME=/", "TMPDIR=/tmp")
	c.Dir, c.Stdout, c.Stderr = "/tmp", os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("xdp.test: %w", err)
	}
	return nil
}

func runOwn(m *testing.M) error {
	if code := m.Run(); code != 0 {
		return fmt.Errorf("guest.test: exit status %d", code)
	}
	return nil
}

// kernel is the running kernel's version, as {6, 12}.
func kernel(t testing.TB) (v [2]int) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &v[0], &v[1]); err != nil {
		t.Fatalf("kernel release %q: %v", release, err)
	}
	return v
}

func atLeast(t testing.TB, major, minor int) bool {
	v := kernel(t)
	return v[0] > major || v[0] == major && v[1] >= minor
}
