package pktgen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/internal/gradients"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// Capture describes a file of contributions: the real gradients of internal/gradients, packet by packet, all workers'
// contributions to one slot after the other, as they would reach a NIC. Replayed to one that has the job (worker w is
// 10.50.0.(w+1), 02:00:00:00:(w+1):00), every slot comes out complete.
type Capture struct {
	Protocol string    // switchml or native
	Workers  int       // 1 to 8; 0 means 8
	Elements int       // of a packet: 64 or 256 for switchml, 1 to 2224 for native; 0 means 256
	Slots    int       // used in turn; 0 means 64
	Packets  int       // of each worker; 0: all of the gradients
	To       inet.MAC  // of the NIC
	ToIP     inet.Addr // of the NIC
	Gap      time.Duration
	Job      uint16 // native: the job's number at the NIC; 0 means 1
	Epoch    uint32 // native: the job's epoch, which its workers learn from the NIC
}

func (c *Capture) check() error {
	if c.Workers == 0 {
		c.Workers = gradients.Workers
	}
	if c.Elements == 0 {
		c.Elements = 256
	}
	if c.Slots == 0 {
		c.Slots = 64
	}
	if c.Job == 0 {
		c.Job = 1
	}
	all := (gradients.Elements + c.Elements - 1) / max(c.Elements, 1)
	if c.Packets == 0 {
		c.Packets = all
	}
	_, legal := switchml.SizeOf(c.Elements)
	switch {
	case c.Protocol != "switchml" && c.Protocol != "native":
		return fmt.Errorf("capture: protocol %q: legal are switchml and native", c.Protocol)
	case c.Workers < 1 || c.Workers > gradients.Workers:
		return fmt.Errorf("capture: %d workers: there are gradients of %d", c.Workers, gradients.Workers)
	case c.Protocol == "switchml" && !legal:
		return fmt.Errorf("capture: %d elements a packet: legal for switchml are 64 and 256", c.Elements)
	case c.Elements < 1 || c.Elements > 2224:
		return fmt.Errorf("capture: %d elements a packet: legal are 1 to 2224", c.Elements)
	case c.Slots < 1 || c.Slots > 8192:
		return fmt.Errorf("capture: %d slots: legal are 1 to 8192", c.Slots)
	case c.Packets < 1 || c.Packets > all:
		return fmt.Errorf("capture: %d packets: the gradients make 1 to %d", c.Packets, all)
	case c.To.IsZero() || c.ToIP.IsZero():
		return errors.New("capture: no destination MAC or IP address")
	}
	return nil
}

// Write writes the capture in pcap format with nanoseconds and returns the number of frames.
func (c Capture) Write(w io.Writer) (frames int, err error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	values := make([][]float32, c.Workers)
	most := float32(0)
	for i := range values {
		if values[i], err = gradients.Load(i); err != nil {
			return 0, err
		}
		for _, v := range values[i] {
			most = max(most, float32(math.Abs(float64(v))))
		}
	}
	// One scale for all, so that the sum of all workers' largest values still fits: the exponent goes on the wire.
	exp := math.Ilogb(float64(most)*float64(c.Workers)) + 1
	out := pcapgo.NewWriterNanos(w)
	if err := out.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		return 0, fmt.Errorf("capture: %w", err)
	}
	at := time.Unix(0, 0).UTC()
	buf := make([]byte, native.ValuesOffset+4*c.Elements+64)
	for p := range c.Packets {
		for rank := range c.Workers {
			part := values[rank][p*c.Elements : min((p+1)*c.Elements, gradients.Elements)]
			var n int
			if c.Protocol == "native" {
				n = c.native(buf, rank, p, part)
			} else {
				n = c.switchML(buf, rank, p, part, exp)
			}
			if err := out.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: n, Length: n}, buf[:n]); err != nil {
				return frames, fmt.Errorf("capture: %w", err)
			}
			at = at.Add(c.Gap)
			frames++
		}
	}
	return frames, nil
}

func worker(rank int) (inet.MAC, inet.Addr, uint16) {
	return inet.MAC{2, 0, 0, 0, byte(rank + 1), 0}, inet.Addr{10, 50, 0, byte(rank + 1)}, uint16(4000 + rank)
}

// switchML writes one contribution: fixed-point numbers of 30 bits below 2^exp.
func (c *Capture) switchML(f []byte, rank, packet int, part []float32, exp int) int {
	mac, ip, port := worker(rank)
	slot, set := packet%c.Slots, packet/c.Slots&1
	n := switchml.PutRequest(f, switchml.Request{
		Worker: switchml.Endpoint{MAC: mac, IP: ip, Port: port}, Switch: switchml.Endpoint{MAC: c.To, IP: c.ToIP, Port: switchml.PortBase},
		Elements: c.Elements, TSI: [4]byte{byte(packet), byte(packet >> 8), byte(packet >> 16)}, PoolIndex: switchml.PoolIndexOf(set, slot), E0: int8(exp),
	})
	b := f[switchml.ValuesOffset:n]
	clear(b)
	for i, v := range part {
		binary.BigEndian.PutUint32(b[4*i:], uint32(int32(math.RoundToEven(math.Ldexp(float64(v), 30-exp)))))
	}
	return n
}

// native writes one contribution of float32.
func (c *Capture) native(f []byte, rank, packet int, part []float32) int {
	mac, ip, port := worker(rank)
	payload := 4 * c.Elements
	native.PutFrame(f, &native.Endpoint{MAC: mac, IP: ip, Port: port}, &native.Endpoint{MAC: c.To, IP: c.ToIP, Port: native.Port}, &native.Header{
		Kind: native.Contribution, Type: native.Float32, Job: c.Job, Rank: uint16(rank), Epoch: c.Epoch, Round: uint32(packet/c.Slots) + 1,
		Slot: uint32(packet % c.Slots), Collective: 1, Elements: uint16(len(part)),
	}, payload)
	b := f[native.ValuesOffset : native.ValuesOffset+payload]
	clear(b)
	for i, v := range part {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return native.ValuesOffset + payload
}
