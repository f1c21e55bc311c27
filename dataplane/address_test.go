package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

func TestAddressClasses(t *testing.T) {
	for ip, want := range map[string]string{
		"0.0.0.0": "needs an IPv4 address", "0.1.2.3": "reserved", "127.0.0.1": "loopback", "127.255.0.9": "loopback",
		"224.0.0.1": "multicast", "239.1.2.3": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
		"10.50.0.254": "", "126.0.0.1": "", "128.0.0.1": "", "223.255.255.254": "", "169.254.1.1": "",
	} {
		a, err := inet.ParseAddr(ip)
		if err != nil {
			t.Fatal(err)
		}
		cfg := testConfig()
		cfg.IP = a
		_, err = New(cfg, NewMemPort("m"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", ip, err, want)
		}
	}
}

func TestAddressBesideTheKernels(t *testing.T) {
	for _, c := range []struct{ ip, own, want string }{
		{"10.1.0.254", "10.1.0.254/24", "it is the address"},
		{"10.1.0.254", "10.1.0.254/32", "it is the address"},
		{"10.1.0.255", "10.1.0.254/24", "broadcast address of subnet 10.1.0.0/24"},
		{"10.1.0.0", "10.1.0.254/24", "address of subnet 10.1.0.0/24"},
		{"10.1.0.253", "10.1.0.254/24", ""},
		{"10.2.0.255", "10.1.0.254/24", ""},
		{"10.1.0.255", "10.1.0.254/16", ""},
		{"10.1.0.1", "10.1.0.0/31", ""},
		{"10.1.0.0", "10.1.0.1/31", ""},
	} {
		own, subnet, err := net.ParseCIDR(c.own)
		if err != nil {
			t.Fatal(err)
		}
		if got := conflict(netip.MustParseAddr(c.ip), &net.IPNet{IP: own, Mask: subnet.Mask}); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s beside %s: %q, want %q", c.ip, c.own, got, c.want)
		}
	}
}

// Errors of the start say what mends them, and name the port once.
func TestStartErrors(t *testing.T) {
	n, err := New(testConfig(), XDPPort{Interface: "gradnic-nosuch"})
	if err != nil {
		t.Fatal(err)
	}
	want := "port gradnic-nosuch: there is no interface gradnic-nosuch (ip link lists those that there are): no such device"
	if err := n.Start(context.Background()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	p := port{name: "eth1"}
	for _, errno := range []error{unix.EPERM, unix.EACCES} {
		err := p.failed(fmt.Errorf("AF_XDP socket: %w", errno))
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), "start as root, or grant CAP_NET_RAW") || strings.Count(err.Error(), "eth1") != 1 {
			t.Errorf("%v", err)
		}
	}
	if err := p.failed(unix.EINVAL); strings.Contains(err.Error(), "root") {
		t.Errorf("%v", err)
	}
}

// An address that the kernel has, on whatever interface of the namespace, is refused before anything is touched.
func TestKernelAddressIsRefused(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	give := func(cidr string) {
		t.Helper()
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			t.Fatal(err)
		}
		link, err := l.nic.Netlink().LinkByName("p1")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.nic.Netlink().AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
	start := func() error {
		t.Helper()
		n, err := New(testConfig(), l.ports()[0]) // on p0: p1 is not even a port
		if err != nil {
			t.Fatal(err)
		}
		err = n.Start(context.Background())
		if serr := n.Stop(context.Background()); serr != nil {
			t.Error(serr)
		}
		return err
	}
	give("10.50.0.253/24")
	if err := start(); err != nil {
		t.Fatalf("another address of the same subnet: %v", err)
	}
	give(nicIP.String() + "/24")
	if err := start(); err == nil || !strings.Contains(err.Error(), nicIP.String()) || !strings.Contains(err.Error(), "interface p1") {
		t.Errorf("the kernel's own address: %v", err)
	}
	if id := linkProgram(t, l.nic, "p0"); id != 0 {
		t.Errorf("program %d is left", id)
	}
}
