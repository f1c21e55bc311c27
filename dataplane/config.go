package dataplane

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/xdp"
)

// Limits of a configuration.
const (
	// BatchSize is the most frames that pass the stages of a lane together.
	BatchSize = 64
	// MaxLanes is the most lanes of a NIC.
	MaxLanes = 64
	// MaxPorts is the most ports of a NIC.
	MaxPorts = 256
	// MinFramesPerQueue and MaxFramesPerQueue bound Config.FramesPerQueue.
	MinFramesPerQueue = 128
	MaxFramesPerQueue = 1 << 16
)

// Defaults of Config.
const (
	DefaultFramesPerQueue = 2048
	DefaultChunkSize      = 2048
	DefaultSpin           = 50 * time.Microsecond
	DefaultDrain          = 250 * time.Millisecond
)

// Wait says what a lane does when its queues are empty.
type Wait uint8

// Ways to wait.
const (
	// Adaptive spins for Config.Spin when there are more CPUs than lanes, then sleeps. An idle NIC costs nothing.
	Adaptive Wait = iota
	// Busy never sleeps. The lane uses its whole CPU.
	Busy
	// Interrupt sleeps as soon as the queues are empty.
	Interrupt
)

var waitNames = [...]string{"adaptive", "busy", "interrupt"}

// String returns the name that ParseWait takes.
func (w Wait) String() string {
	if int(w) < len(waitNames) {
		return waitNames[w]
	}
	return fmt.Sprintf("wait(%d)", uint8(w))
}

// ParseWait returns the way to wait of this name.
func ParseWait(s string) (Wait, error) {
	for i, n := range waitNames {
		if s == n {
			return Wait(i), nil
		}
	}
	return 0, fmt.Errorf("wait %q: legal are %s", s, strings.Join(waitNames[:], ", "))
}

// MarshalText implements encoding.TextMarshaler.
func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Wait) UnmarshalText(b []byte) (err error) {
	*w, err = ParseWait(string(b))
	return err
}

// Config is the NIC's configuration. Zero values mean the documented defaults; MAC and IP are required.
type Config struct {
	// MAC and IP are the NIC's own virtual address: unicast, and the IP address never one that the kernel has on a netdev
	// of an XDPPort's namespace.
	MAC inet.MAC
	IP  inet.Addr
	// Lanes is the number of lanes, 1 to MaxLanes; 0 means 1. Every netdev needs at least as many queues.
	Lanes int
	// CPUs pins lane i to CPUs[i]; empty leaves the lanes to the scheduler, otherwise one CPU a lane.
	CPUs []int
	// FramesPerQueue is the number of chunks of each port's queue, half for receive and half for transmit.
	// A power of two from MinFramesPerQueue to MaxFramesPerQueue; 0 means DefaultFramesPerQueue.
	FramesPerQueue int
	// ChunkSize is 2048 or 4096; 0 means DefaultChunkSize.
	ChunkSize int
	// LongestFrame is the longest frame in bytes, Ethernet header included; 0 means as the netdevs' MTUs need it. Frames
	// that do not fit into a chunk take several (Linux 6.6), which costs every frame a little.
	LongestFrame int
	// HugePages asks for hugepage-backed memory.
	HugePages bool
	// Replicate is how the copies of a result are made.
	Replicate Replicate
	// Wait is what an idle lane does.
	Wait Wait
	// Spin is how long an adaptive lane spins before it sleeps; 0 means DefaultSpin, negative means not at all.
	Spin time.Duration
	// Drain bounds how long Stop waits for frames in flight; 0 means DefaultDrain.
	Drain time.Duration
	// NoHealing leaves ports alone whose netdevs go away or change underneath: nothing looks after them. Healing needs
	// CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF as long as the NIC runs; without it the process may drop all it has.
	NoHealing bool
	// Seed makes impairments reproducible. Each port and lane draws from a stream of its own.
	Seed uint64
	// Layouts are headers of cards that jobs may name, beside the protocols' own.
	Layouts []*layout.Layout
	// nativeLayouts is true when one of them has the native rules.
	nativeLayouts bool
	// Logger takes what happens at start, stop and on errors; nil discards.
	Logger *slog.Logger
}

// DefaultMAC is the MAC that a NIC has whose user gave none: locally administered, of its IP address.
func DefaultMAC(ip inet.Addr) inet.MAC { return inet.MAC{0x02, 0x67, ip[0], ip[1], ip[2], ip[3]} }

func (c *Config) setDefaults() error {
	if c.MAC == (inet.MAC{}) || c.MAC.IsMulticast() {
		return fmt.Errorf("config: MAC %v: the NIC needs a unicast MAC address of its own", c.MAC)
	}
	if err := checkAddress(c.IP); err != nil {
		return err
	}
	if c.Lanes == 0 {
		c.Lanes = 1
	}
	if c.Lanes < 1 || c.Lanes > MaxLanes {
		return fmt.Errorf("config: %d lanes: legal are 1 to %d", c.Lanes, MaxLanes)
	}
	if n := len(c.CPUs); n != 0 && n != c.Lanes {
		return fmt.Errorf("config: %d CPUs for %d lanes: name one CPU a lane, or none", n, c.Lanes)
	}
	if c.FramesPerQueue == 0 {
		c.FramesPerQueue = DefaultFramesPerQueue
	}
	if f := c.FramesPerQueue; f < MinFramesPerQueue || f > MaxFramesPerQueue || f&(f-1) != 0 {
		return fmt.Errorf("config: %d frames per queue: legal are powers of two from %d to %d", f, MinFramesPerQueue, MaxFramesPerQueue)
	}
	if c.ChunkSize == 0 {
		c.ChunkSize = DefaultChunkSize
	}
	if c.ChunkSize != 2048 && c.ChunkSize != 4096 {
		return fmt.Errorf("config: chunk size %d: legal are 2048 and 4096", c.ChunkSize)
	}
	if most := xdp.MaxPieces * (c.ChunkSize - xdp.KernelHeadroom); c.LongestFrame < 0 || c.LongestFrame > most {
		return fmt.Errorf("config: longest frame of %d bytes: legal are up to %d with chunks of %d", c.LongestFrame, most, c.ChunkSize)
	}
	if int(c.Wait) >= len(waitNames) {
		return fmt.Errorf("config: %v: legal are %s", c.Wait, strings.Join(waitNames[:], ", "))
	}
	if int(c.Replicate) >= len(replicateNames) {
		return fmt.Errorf("config: %v: legal are %s", c.Replicate, strings.Join(replicateNames[:], ", "))
	}
	if c.Spin == 0 {
		c.Spin = DefaultSpin
	}
	if c.Drain <= 0 {
		c.Drain = DefaultDrain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
