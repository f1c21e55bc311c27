// Package acclrun is what `gradnic accl` runs: one rank of an ACCL communicator, over a socket of the kernel or inside a NIC
// of its own on AF_XDP, that makes one kind of call over several sizes, checks every result, and reports as nccl-tests does.
package acclrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// Transports.
const (
	OverUDP = "udp" // a socket of the kernel
	OverXDP = "xdp" // a NIC of the rank's own, on an interface
)

// Options say what a rank does. All ranks of a communicator must have the same but Rank, Transport, Interface and MAC.
type Options struct {
	Rank accl.Config
	// Transport is OverUDP or OverXDP; the latter needs Interface. MAC is the NIC's there; zero makes one of the address.
	Transport string
	Interface string
	MAC       inet.MAC

	// Call is the call without count and elements. A Send is from its Root to the rank behind that one.
	Call   accl.Call
	Counts []int
	Seed   uint64
	// Iterations are timed, after Warmup that are not; all are checked with Check. Then all ranks must be gradnic's: the
	// elements of the others are made anew from the seed.
	Iterations, Warmup int
	Check              bool
	// Sync makes an allreduce of one element behind each call that does not hold the ranks together by itself. Otherwise a
	// rank that only sends would run ahead of the others' buffers.
	Sync bool
	// Settle is the time between being ready and the first message: the wire has no way to ask whether the others are.
	Settle time.Duration
	// Join bounds the search for the others' MAC addresses, over XDP.
	Join time.Duration
}

// Validate says whether Run would take the options.
func (o *Options) Validate() error {
	if _, err := accl.NewEngine(o.Rank); err != nil {
		return err
	}
	switch {
	case o.Transport != OverUDP && o.Transport != OverXDP:
		return fmt.Errorf("transport %q: legal are %s and %s", o.Transport, OverUDP, OverXDP)
	case o.Transport == OverXDP && o.Interface == "":
		return errors.New("transport xdp: the interface is missing that leads to the other ranks")
	case o.MAC.IsMulticast():
		return fmt.Errorf("MAC %v is a group's", o.MAC)
	case o.Call.Root < 0 || o.Call.Root >= len(o.Rank.Ranks):
		return fmt.Errorf("root %d of %d ranks", o.Call.Root, len(o.Rank.Ranks))
	case o.Call.Collective == accl.Recv:
		return errors.New("recv: name send, which is the root's to the rank behind it; the others know their part")
	case o.Call.Collective == accl.Send && len(o.Rank.Ranks) < 2:
		return errors.New("send: one rank has nobody to send to")
	case len(o.Counts) == 0:
		return errors.New("no count")
	case o.Iterations < 1 || o.Warmup < 0:
		return fmt.Errorf("%d iterations after %d to warm up: at least 1 and 0", o.Iterations, o.Warmup)
	case o.Settle < 0 || o.Join < 0:
		return errors.New("a time is negative")
	}
	for _, n := range o.Counts {
		if n < 0 || n > 1<<24 {
			return fmt.Errorf("count %d: legal are 0 to %d", n, 1<<24)
		}
	}
	return nil
}

// Ranks reads the addresses of all ranks, in order: a list with commas of "address", "address:port" or either with
// "@MAC" behind it; or the name of a JSON file, {"ips": ["10.10.10.1", ...]} as ACCL's own tools read it, whose entries may
// have ports and MACs in the same way.
func Ranks(s string) ([]accl.Peer, error) {
	names := strings.Split(s, ",")
	if strings.HasSuffix(s, ".json") {
		b, err := os.ReadFile(s)
		if err != nil {
			return nil, err
		}
		var file struct {
			IPs []string `json:"ips"`
		}
		if err := json.Unmarshal(b, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		if names = file.IPs; len(names) == 0 {
			return nil, fmt.Errorf(`%s: no "ips"`, s)
		}
	}
	var ranks []accl.Peer
	for i, name := range names {
		var p accl.Peer
		at, mac, found := strings.Cut(strings.TrimSpace(name), "@")
		var err error
		if found {
			if p.MAC, err = inet.ParseMAC(mac); err != nil {
				return nil, fmt.Errorf("rank %d: %q: %w", i, name, err)
			}
		}
		if ap, err2 := netip.ParseAddrPort(at); err2 == nil && ap.Addr().Is4() {
			p.IP, p.Port = ap.Addr().As4(), ap.Port()
		} else if p.IP, err = inet.ParseAddr(at); err != nil {
			return nil, fmt.Errorf("rank %d: %q: %w", i, name, err)
		}
		ranks = append(ranks, p)
	}
	return ranks, nil
}
