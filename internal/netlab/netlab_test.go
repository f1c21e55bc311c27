package netlab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
)

// namespacesOf lists the named namespaces that start with stem, as ip(8) sees them.
func namespacesOf(t *testing.T, stem string) []string {
	t.Helper()
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatalf("ip netns list: %v", err)
	}
	var names []string
	for _, line := range strings.Split(string(out), "\n") {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, stem) {
			names = append(names, name)
		}
	}
	return names
}

// currentNS identifies the network namespace of the calling thread.
func currentNS(t *testing.T) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func pair(t *testing.T, lab *netlab.Lab) (a, b *netlab.NS) {
	t.Helper()
	a, b = netlabtest.Namespace(t, lab, "a"), netlabtest.Namespace(t, lab, "b")
	netlabtest.Veth(t, lab,
		netlab.End{NS: a, Name: "va", MAC: "02:00:00:00:00:0a", Addr: "10.50.0.1/24", MTU: 9000, Queues: 2},
		netlab.End{NS: b, Name: "vb", MAC: "02:00:00:00:00:0b", Addr: "10.50.0.2/24", MTU: 9000, Queues: 3})
	return a, b
}

func ping(ns *netlab.NS, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := ns.Command(ctx, "ping", "-n", "-c", "1", "-W", "3", addr).CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}

func TestVethCarriesTraffic(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	a, b := pair(t, lab)
	for _, c := range []struct {
		ns   *netlab.NS
		addr string
	}{{a, "127.0.0.1"}, {a, "10.50.0.2"}, {b, "10.50.0.1"}} {
		if err := ping(c.ns, c.addr); err != nil {
			t.Errorf("ping %s from %s: %v", c.addr, c.ns.Name(), err)
		}
	}
}

func TestVethIsMadeAsAsked(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	a, b := pair(t, lab)
	for _, c := range []struct {
		ns     *netlab.NS
		name   string
		mac    string
		queues int
	}{{a, "va", "02:00:00:00:00:0a", 2}, {b, "vb", "02:00:00:00:00:0b", 3}} {
		link, err := c.ns.Netlink().LinkByName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		at := link.Attrs()
		if at.HardwareAddr.String() != c.mac || at.MTU != 9000 || at.NumRxQueues != c.queues || at.NumTxQueues != c.queues {
			t.Errorf("%s: MAC %s, MTU %d, queues %d/%d", c.name, at.HardwareAddr, at.MTU, at.NumRxQueues, at.NumTxQueues)
		}
		if at.Flags&net.FlagUp == 0 {
			t.Errorf("%s is down", c.name)
		}
		on, err := c.ns.Features(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if !on["rx-gro"] {
			t.Errorf("%s: GRO is off", c.name)
		}
		if !on["tx-checksum-ip-generic"] {
			t.Errorf("%s: checksum offload is off without being asked", c.name)
		}
		addrs, err := c.ns.Netlink().AddrList(link, unix.AF_INET6)
		if err != nil {
			t.Fatal(err)
		}
		if len(addrs) != 0 {
			t.Errorf("%s has IPv6 addresses %v", c.name, addrs)
		}
	}
	netlabtest.Veth(t, lab, netlab.End{NS: a, Name: "plain", NoChecksumOffload: true}, netlab.End{NS: b, Name: "plain"})
	on, err := a.Features("plain")
	if err != nil {
		t.Fatal(err)
	}
	if on["tx-checksum-ip-generic"] {
		t.Error("plain: checksum offload is on")
	}
}

func TestNothingAppearsOnTheHost(t *testing.T) {
	netlabtest.NeedRoot(t)
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	lab, err := netlab.New("netlabt")
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t, lab)
	if err := lab.LimitedVeth(netlab.End{NS: a, Name: "la"}, netlab.End{NS: b, Name: "lb"}, 1e9); err != nil {
		t.Fatal(err)
	}
	if got := namespacesOf(t, lab.Name()); len(got) != 3 {
		t.Errorf("ip netns shows %v, want 3 namespaces", got)
	}
	during, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(during) != len(before) {
		t.Errorf("interfaces of the caller's namespace: %d before, %d with the lab", len(before), len(during))
	}
	// A socket that outlives the lab must not keep the links.
	var sock *net.UDPConn
	if err := a.Do(func() (err error) {
		sock, err = net.ListenUDP("udp4", nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	for range 2 { // the second is a no-op
		if err := lab.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if got := namespacesOf(t, lab.Name()); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
	if _, err := sock.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.IPv4(10, 50, 0, 2), Port: 9}); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("send on a socket of a closed lab: %v, want network unreachable", err)
	}
	if _, err := lab.Namespace("late"); err == nil {
		t.Error("a closed lab made a namespace")
	}
	if err := a.Do(func() error { return nil }); err == nil {
		t.Error("a closed lab's namespace was entered")
	}
}

func TestDoRestoresTheThread(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	a, b := netlabtest.Namespace(t, lab, "a"), netlabtest.Namespace(t, lab, "b")
	home := currentNS(t)
	var inA, inB, backInA uint64
	if err := a.Do(func() error {
		inA = currentNS(t)
		err := b.Do(func() error { inB = currentNS(t); return nil })
		backInA = currentNS(t)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if inA == home || inB == home || inA == inB || backInA != inA {
		t.Errorf("home %d, in a %d, in b %d, back in a %d", home, inA, inB, backInA)
	}
	// Every thread that the runtime has must be at home again, whatever ended fn.
	want := errors.New("x")
	if err := a.Do(func() error { return want }); err != want {
		t.Errorf("error %v, want %v", err, want)
	}
	func() {
		defer func() {
			if v, _ := recover().(string); !strings.Contains(v, "boom") || !strings.Contains(v, "netlab_test.go") {
				t.Errorf("panic value %q, want boom and the stack of fn", v)
			}
		}()
		_ = a.Do(func() error { panic("boom") })
	}()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_ = a.Do(func() error { runtime.Goexit(); return nil })
		ended <- true
	}()
	if <-ended {
		t.Error("Goexit in fn did not end the caller")
	}
	if n := threadsIn(t, inA) + threadsIn(t, inB); n != 0 {
		t.Errorf("%d threads stayed in a namespace", n)
	}
}

func TestDoThrowsAwayAThreadThatCannotReturn(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	a := netlabtest.Namespace(t, lab, "a")
	home := currentNS(t)
	var inA uint64
	if err := a.Do(func() error {
		inA = currentNS(t)
		// Without CAP_SYS_ADMIN, which capset takes from this thread alone, it cannot enter the old namespace again.
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&hdr, &caps[0]); err != nil {
			return err
		}
		caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		return unix.Capset(&hdr, &caps[0])
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if ns := currentNS(t); ns != home {
				t.Errorf("a goroutine runs in namespace %d, home is %d", ns, home)
			}
		}()
	}
	wg.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for threadsIn(t, inA) != 0 {
		if time.Now().After(deadline) {
			t.Fatal("the thread that could not return lives")
		}
		time.Sleep(time.Millisecond)
	}
}

// threadsIn counts the process's threads in a network namespace. The main thread does not count: the runtime cannot end
// it and parks it for ever instead.
func threadsIn(t *testing.T, ns uint64) (n int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("threads: %v, %v", tasks, err)
	}
	for _, task := range tasks {
		var st unix.Stat_t
		if err := unix.Stat(task+"/ns/net", &st); err == nil && st.Ino == ns && filepath.Base(task) != strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func TestProcessInside(t *testing.T) {
	netlabtest.NeedRoot(t)
	lab, err := netlab.New("netlabt")
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	a := netlabtest.Namespace(t, lab, "a")
	var want string
	if err := a.Do(func() (err error) {
		want, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	out, err := a.Command(ctx, "readlink", "/proc/self/ns/net").Output()
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("Command runs in %q (%v), want %q", out, err, want)
	}
	var started strings.Builder
	cmd := exec.CommandContext(ctx, "readlink", "/proc/self/ns/net")
	cmd.Stdout = &started
	if err := a.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.TrimSpace(started.String()) != want {
		t.Errorf("Start runs in %q (%v), want %q", started.String(), err, want)
	}
	// Close ends what still runs.
	sleeper := exec.Command("sleep", "1000")
	if err := a.Start(sleeper); err != nil {
		t.Fatal(err)
	}
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := sleeper.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("a process in a closed lab ended with %v, want killed", err)
	}
}

// Three hosts on a bridge reach each other, and a port that is not there is named.
func TestBridge(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	middle := netlabtest.Namespace(t, lab, "middle")
	var hosts []*netlab.NS
	var ports []string
	for i := range 3 {
		host, port := netlabtest.Namespace(t, lab, fmt.Sprint("h", i)), fmt.Sprint("p", i)
		netlabtest.Veth(t, lab, netlab.End{NS: host, Name: "eth0", Addr: fmt.Sprintf("10.50.0.%d/24", i+1), MTU: 9000}, netlab.End{NS: middle, Name: port, MTU: 9000})
		hosts, ports = append(hosts, host), append(ports, port)
	}
	if err := middle.Bridge("other", 0, "absent"); err == nil || !strings.Contains(err.Error(), "find port absent") {
		t.Errorf("a port that is not there: %v", err)
	}
	if err := middle.Bridge("switch", 9000, ports...); err != nil {
		t.Fatal(err)
	}
	if link, err := middle.Netlink().LinkByName("switch"); err != nil || link.Attrs().MTU != 9000 {
		t.Errorf("the bridge: %+v, %v", link, err)
	}
	for i, host := range hosts {
		if err := ping(host, fmt.Sprintf("10.50.0.%d", (i+1)%3+1)); err != nil {
			t.Error(err)
		}
	}
}

func TestBadEndsAreRefused(t *testing.T) {
	lab := netlabtest.New(t, "netlabt")
	a := netlabtest.Namespace(t, lab, "a")
	good := netlab.End{NS: a, Name: "good"}
	for name, bad := range map[string]netlab.End{
		"no namespace": {Name: "x"},
		"no name":      {NS: a},
		"long name":    {NS: a, Name: "sixteencharsname"},
		"mac":          {NS: a, Name: "x", MAC: "02:00"},
		"address":      {NS: a, Name: "x", Addr: "10.50.0.300/24"},
		"mtu":          {NS: a, Name: "x", MTU: -1},
	} {
		if err := lab.Veth(good, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := lab.LimitedVeth(good, netlab.End{NS: a, Name: "x"}, 0); err == nil {
		t.Error("rate 0 accepted")
	}
	if _, err := lab.Namespace("a"); err == nil {
		t.Error("second namespace of the same name accepted")
	}
	if _, err := lab.Namespace("../a"); err == nil {
		t.Error("a name with a slash accepted")
	}
	if _, err := netlab.New("Bad-prefix"); err == nil {
		t.Error("prefix with a dash accepted")
	}
}
