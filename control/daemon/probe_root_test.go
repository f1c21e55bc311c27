package daemon

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"gradnic/dataplane"
	"gradnic/internal/logtest"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

// A NIC whose address somebody has says who, whether it is a host or another NIC; one alone says nothing.
func TestAddressThatSomebodyHas(t *testing.T) {
	lab := netlabtest.New(t, "twice")
	here, there := netlabtest.Namespace(t, lab, "here"), netlabtest.Namespace(t, lab, "there")
	netlabtest.Veth(t, lab, netlab.End{NS: here, Name: "e0"}, netlab.End{NS: there, Name: "e1", MAC: "02:00:00:00:00:77"})
	nic := func(ns *netlab.NS, name string) (*logtest.Lines, func() error) {
		var log logtest.Lines
		o := Options{
			NIC:    dataplane.Config{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}, FramesPerQueue: 256},
			Ports:  []dataplane.PortSpec{dataplane.XDPPort{Interface: name, Namespace: ns.Do}},
			API:    filepath.Join(t.TempDir(), "api.sock"),
			Logger: log.Logger(),
		}
		_, stop := start(t, o)
		return &log, stop
	}
	end := func(stop func() error) {
		t.Helper()
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	first, stopFirst := nic(there, "e1")
	second, stop := nic(here, "e0")
	second.Wait(t, `another station has the NIC's address" ip=10.50.0.254 mac=02:67:0a:32:00:fe port=e0 which="another gradnic"`)
	end(stop)
	end(stopFirst)
	if strings.Contains(first.String(), "another station") {
		t.Errorf("the first one, which was alone, said:\n%s", first.String())
	}

	link, err := there.Netlink().LinkByName("e1")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("10.50.0.254/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Netlink().AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	host, stop := nic(here, "e0")
	host.Wait(t, `ip=10.50.0.254 mac=02:00:00:00:00:77 port=e0`+"\n")
	end(stop)
}
