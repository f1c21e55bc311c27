package accl

import (
	"fmt"
	"time"

	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
)

// Defaults of [Config].
const (
	DefaultSegment  = wire.OneDatagram
	DefaultBuffers  = 1024
	DefaultMaxEager = 1 << 20
	DefaultTimeout  = 10 * time.Second
)

// Peer is where a rank is.
type Peer struct {
	IP   inet.Addr
	Port uint16   // 0: wire.BasePort plus the rank
	MAC  inet.MAC // needed by [Responder] only
}

// Config describes one rank of a communicator. All ranks, cards included, must have the same Segment and MaxEager.
type Config struct {
	Rank  int    // of this rank, an index of Ranks
	Ranks []Peer // of all ranks, this one included; 1 to wire.MaxRanks

	// Segment is the bytes of a receive buffer (the card's rx buffer size): the most bytes of elements in a message.
	// Whole words of 64; 0 means 4032, the most that one datagram carries. More needs LongMessages.
	Segment int
	// LongMessages allows messages of several datagrams. Then not every loss can be found: two datagrams that changed
	// places inside a message, or a run of losses up to the same place of a later message, give wrong elements.
	LongMessages bool
	// Buffers is how many messages may wait to be used; 0 means 1024. A message that finds none is lost.
	Buffers int
	// MaxEager is the most bytes of a call's Count elements; 0 means 1 MiB. It does not bind calls with Half.
	MaxEager int
	// Timeout is how long a call waits for the next message; 0 means 10 s.
	Timeout time.Duration
	// CardPadding fills a message's last word as the card's emulator does: with what the engine's earlier reads left in
	// the word, which is this rank's own older elements. Otherwise with zeros. It means nothing to a receiver.
	CardPadding bool
}

// setDefaults completes and checks the configuration.
func (c *Config) setDefaults() error {
	n := len(c.Ranks)
	if n < 1 || n > wire.MaxRanks {
		return fmt.Errorf("accl: %d ranks: legal are 1 to %d", n, wire.MaxRanks)
	}
	if c.Rank < 0 || c.Rank >= n {
		return fmt.Errorf("accl: rank %d of %d ranks", c.Rank, n)
	}
	ranks := make([]Peer, n)
	seen := map[Peer]int{}
	for i, p := range c.Ranks {
		if !p.IP.IsUnicast() {
			return fmt.Errorf("accl: rank %d: address %v is not a host's", i, p.IP)
		}
		if p.Port == 0 {
			p.Port = wire.BasePort + uint16(i)
		}
		at := Peer{IP: p.IP, Port: p.Port}
		if j, ok := seen[at]; ok {
			return fmt.Errorf("accl: ranks %d and %d are both at %v port %d", j, i, p.IP, p.Port)
		}
		seen[at] = i
		ranks[i] = p
	}
	c.Ranks = ranks
	if c.Segment == 0 {
		c.Segment = DefaultSegment
	}
	most := wire.OneDatagram
	if c.LongMessages {
		most = 1 << 22
	}
	if c.Segment < wire.Word || c.Segment%wire.Word != 0 || c.Segment > most {
		return fmt.Errorf("accl: segment of %d bytes: legal are multiples of %d up to %d (long messages: %v)", c.Segment, wire.Word, most, c.LongMessages)
	}
	if c.Buffers == 0 {
		c.Buffers = DefaultBuffers
	}
	if c.Buffers < 1 || c.Buffers > 1<<20 {
		return fmt.Errorf("accl: %d buffers: legal are 1 to %d", c.Buffers, 1<<20)
	}
	if c.MaxEager == 0 {
		c.MaxEager = DefaultMaxEager
	}
	if c.MaxEager < 0 {
		return fmt.Errorf("accl: eager limit of %d bytes is negative", c.MaxEager)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Timeout < 0 {
		return fmt.Errorf("accl: timeout %v is negative", c.Timeout)
	}
	return nil
}
