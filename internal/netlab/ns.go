package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namedDir is where ip(8) and package netns keep named namespaces.
const namedDir = "/run/netns"

// NS is one network namespace. It is valid until its lab is closed.
type NS struct {
	name string

	mu     sync.RWMutex // held for reading while a Do runs, for writing by remove
	handle netns.NsHandle
	nl     *netlink.Handle
}

// newNS makes the namespace under its full name. On error nothing remains.
func newNS(name string) (*NS, error) {
	ns := &NS{name: name, handle: netns.None()}
	err := onOwnThread(func() error {
		h, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		ns.handle = h
		if err := disableIPv6(); err != nil {
			return err
		}
		ns.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		lo, err := ns.nl.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		if err := ns.nl.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set lo up: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, ns.remove())
	}
	return ns, nil
}

// disableIPv6 turns IPv6 off in the calling thread's namespace, for interfaces that exist and that will come. A kernel
// without IPv6 is as good.
func disableIPv6() error {
	for _, which := range []string{"all", "default"} {
		path := "/proc/sys/net/ipv6/conf/" + which + "/disable_ipv6"
		err := os.WriteFile(path, []byte("1\n"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("turn IPv6 off: %w", err)
		}
	}
	return nil
}

// Name returns the namespace's full name, as `ip netns` shows it.
func (ns *NS) Name() string { return ns.name }

// Path returns the file that names the namespace.
func (ns *NS) Path() string { return filepath.Join(namedDir, ns.name) }

// FD returns a descriptor of the namespace, owned by the lab: valid until the lab is closed, not to be closed by the
// caller; -1 when the lab is closed.
func (ns *NS) FD() int {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return int(ns.handle)
}

// Netlink returns a netlink handle in the namespace, owned by the lab; nil when the lab is closed.
func (ns *NS) Netlink() *netlink.Handle {
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	return ns.nl
}

// Do runs fn on a locked thread whose network namespace is ns, and returns fn's error. Sockets opened by fn belong to
// ns for their life, whoever uses them afterwards; goroutines started by fn do not run in ns. The thread goes back to
// where it was before it is used for anything else; if that fails it is thrown away. A panic in fn goes on in the
// caller with fn's stack in its value, and runtime.Goexit in fn (t.FailNow) ends the caller too. Do may be nested.
func (ns *NS) Do(fn func() error) error {
	ns.mu.RLock()
	if !ns.handle.IsOpen() {
		ns.mu.RUnlock()
		return fmt.Errorf("netlab: %s: the lab is closed", ns.name)
	}
	handle, err := unix.FcntlInt(uintptr(ns.handle), unix.F_DUPFD_CLOEXEC, 0)
	ns.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("netlab: %s: duplicate descriptor: %w", ns.name, err)
	}
	defer unix.Close(handle)
	return onOwnThread(func() error {
		if err := unix.Setns(handle, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netlab: enter %s: %w", ns.name, err)
		}
		return fn()
	})
}

// onOwnThread runs fn on a goroutine locked to its thread. fn may change the thread's network namespace. When the old
// one cannot be entered again the goroutine ends while locked, and the runtime destroys the thread.
func onOwnThread(fn func() error) error {
	var (
		err      error
		returned bool
		panicked any
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		origin, e := netns.Get()
		if e != nil {
			runtime.UnlockOSThread()
			err, returned = fmt.Errorf("netlab: current namespace: %w", e), true
			return
		}
		defer func() {
			if v := recover(); v != nil {
				panicked = fmt.Sprintf("%v\n\nin a namespace, at:\n%s", v, debug.Stack())
			}
			if netns.Set(origin) == nil {
				runtime.UnlockOSThread()
			}
			origin.Close()
		}()
		err = fn()
		returned = true
	}()
	<-done
	switch {
	case panicked != nil:
		panic(panicked)
	case !returned:
		runtime.Goexit()
	}
	return err
}

// Command returns a command that will run inside the namespace, by nsenter(1), which replaces itself with the program:
// the process's id and signals are the program's own. ctx and args are those of [exec.CommandContext].
func (ns *NS) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + ns.Path(), "--", name}, args...)...)
}

// Start starts cmd, made by the caller, inside the namespace, without a program in between.
func (ns *NS) Start(cmd *exec.Cmd) error { return ns.Do(cmd.Start) }

// Interface returns index and hardware address of an interface in the namespace.
func (ns *NS) Interface(name string) (index int, mac net.HardwareAddr, err error) {
	nl := ns.Netlink()
	if nl == nil {
		return 0, nil, fmt.Errorf("netlab: %s: the lab is closed", ns.name)
	}
	link, err := nl.LinkByName(name)
	if err != nil {
		return 0, nil, fmt.Errorf("netlab: interface %s in %s: %w", name, ns.name, err)
	}
	return link.Attrs().Index, link.Attrs().HardwareAddr, nil
}

// remove kills what runs in the namespace, deletes its links and its name, and closes the descriptors.
func (ns *NS) remove() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if !ns.handle.IsOpen() {
		return nil
	}
	errs := []error{killProcesses(ns.handle)}
	if ns.nl != nil {
		errs = append(errs, deleteLinks(ns.nl))
		ns.nl.Close()
		ns.nl = nil
	}
	errs = append(errs, deleteNamed(ns.name), ns.handle.Close())
	ns.handle = netns.None()
	return errors.Join(errs...)
}

// deleteNamed takes the name of a namespace away. The namespace itself goes with its last user.
func deleteNamed(name string) error {
	path := filepath.Join(namedDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace file: %w", err)
	}
	return nil
}

// deleteLinks deletes every link but lo. A namespace that some socket still holds would otherwise keep its veth pairs,
// and with them the other ends, for as long as that socket lives.
func deleteLinks(nl *netlink.Handle) error {
	links, err := nl.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		// The peer's end, deleted a moment ago, takes this one along: then it is gone already.
		if err := nl.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("delete link %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}
