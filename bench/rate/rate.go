// Package rate is the arithmetic of line rate: what a rate in frames, bits or percent means on an Ethernet link, and how
// a total is divided among queues without losing any of it.
//
// Frame sizes are those that Linux, AF_XDP and captures see: from the destination MAC to the last byte of the payload,
// without the frame check sequence (FCS). On the wire a frame is padded to 60 bytes and takes 4 bytes of FCS, 8 of
// preamble and 12 of gap more (IEEE 802.3): RFC 2544's "64 byte frame" counts the FCS and is 60 bytes here.
package rate

import (
	"fmt"
	"strconv"
	"strings"
)

// What the wire adds to a frame, in bytes.
const (
	Shortest = 60 // a shorter frame is padded
	FCS      = 4
	Framing  = 20 // preamble and start of frame 8, gap 12
)

// L2Bytes is what a frame counts on layer 2: with padding and FCS, without preamble and gap.
func L2Bytes(frame int) int { return max(frame, Shortest) + FCS }

// L1Bytes is what a frame takes of the link's time, with preamble and gap.
func L1Bytes(frame int) int { return L2Bytes(frame) + Framing }

// Line is the most frames a second of a link of so many bit/s.
func Line(link float64, frame int) float64 { return link / float64(8*L1Bytes(frame)) }

// Unit is what a rate counts.
type Unit uint8

// Units of rates.
const (
	None    Unit = iota // no rate: as fast as it goes
	PPS                 // frames a second
	L1                  // bit/s on the wire, with preamble, gap and FCS
	L2                  // bit/s of frames with FCS
	Percent             // of the link
)

// Rate is an asked rate. The zero value is as fast as it goes.
type Rate struct {
	Value float64
	Unit  Unit
}

// String writes the rate with its label, so that Parse reads it again.
func (r Rate) String() string {
	n := func(v float64) string {
		for _, m := range []struct {
			by   float64
			name string
		}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
			if v >= m.by {
				return strconv.FormatFloat(v/m.by, 'g', 6, 64) + m.name
			}
		}
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	switch r.Unit {
	case PPS:
		return n(r.Value) + "pps"
	case L1:
		return n(r.Value) + "bit/s-L1"
	case L2:
		return n(r.Value) + "bit/s-L2"
	case Percent:
		return strconv.FormatFloat(r.Value, 'g', 6, 64) + "%"
	}
	return "max"
}

// Parse reads "max", "1.5Mpps", "10Gbit/s-L1", "9.5Gbit/s-L2" or "50%". Bits without a label are refused: the two
// layers differ by a third at small frames.
func Parse(s string) (Rate, error) {
	text := strings.TrimSpace(s)
	if text == "" || text == "max" {
		return Rate{}, nil
	}
	for _, u := range []struct {
		suffix string
		unit   Unit
	}{{"pps", PPS}, {"bit/s-L1", L1}, {"bit/s-L2", L2}, {"%", Percent}} {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		by := 1.0
		if u.unit != Percent {
			for letter, size := range map[string]float64{"G": 1e9, "M": 1e6, "k": 1e3} {
				if n, ok := strings.CutSuffix(number, letter); ok {
					number, by = n, size
					break
				}
			}
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v > 0) || v*by > 1e13 || (u.unit == Percent && v > 100) {
			return Rate{}, fmt.Errorf("rate %q: the number must be above 0, percent at most 100", s)
		}
		return Rate{Value: v * by, Unit: u.unit}, nil
	}
	if strings.Contains(text, "bit") {
		return Rate{}, fmt.Errorf("rate %q: say which layer counts: bit/s-L1 (with preamble, gap and FCS) or bit/s-L2 (frames with FCS)", s)
	}
	return Rate{}, fmt.Errorf("rate %q: want max, or a number with pps, bit/s-L1, bit/s-L2 or %%, such as 1.5Mpps or 10Gbit/s-L1", s)
}

// PPS is the rate in frames a second for frames of these sizes in these shares (nil shares: alike), on a link of so
// many bit/s (needed for percent alone). 0 means as fast as it goes.
func (r Rate) PPS(sizes []int, shares []float64, link float64) (float64, error) {
	if r.Unit == None {
		return 0, nil
	}
	if r.Unit == PPS {
		return r.Value, nil
	}
	if len(sizes) == 0 {
		return 0, fmt.Errorf("rate %v: no frame size", r)
	}
	var l1, l2, total float64
	for i, size := range sizes {
		share := 1.0
		if shares != nil {
			share = shares[i]
		}
		l1, l2, total = l1+share*float64(L1Bytes(size)), l2+share*float64(L2Bytes(size)), total+share
	}
	switch r.Unit {
	case L1:
		return r.Value * total / (8 * l1), nil
	case L2:
		return r.Value * total / (8 * l2), nil
	case Percent:
		if link <= 0 {
			return 0, fmt.Errorf("rate %v: of a link whose speed is not known: say it (--link)", r)
		}
		return r.Value / 100 * link * total / (8 * l1), nil
	}
	return 0, fmt.Errorf("rate of unit %d", r.Unit)
}

// Split divides n frames among queues: the parts differ by one at most and add up to n.
func Split(n uint64, queues int) []uint64 {
	parts := make([]uint64, queues)
	for i := range parts {
		parts[i] = n / uint64(queues)
		if uint64(i) < n%uint64(queues) {
			parts[i]++
		}
	}
	return parts
}
