package plan

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// System is how fast nodes compute and how fast links carry. The units are
// those in the names; rates of links are in 10^9 bits a second each way.
type System struct {
	Name   string `yaml:"name" json:"name"`
	Source string `yaml:"source" json:"source"`
	// LinkGbit is the rate of a NIC's port for payload.
	LinkGbit float64 `yaml:"link_gbit" json:"link_gbit"`
	// HostGbit is the rate between host and NIC.
	HostGbit float64 `yaml:"host_gbit" json:"host_gbit"`
	// AdderGbytes is how much a NIC adds, in 10^9 bytes of float32 a second; 0: as fast as it may arrive.
	AdderGbytes float64 `yaml:"adder_gbytes" json:"adder_gbytes"`
	// SliceBytes is the ring's unit before compression. The NICs' ring starts
	// and ends with 2(N-1) of them in a row.
	SliceBytes int64 `yaml:"slice_bytes" json:"slice_bytes"`
	// HopUs is what a slice spends between two NICs besides its own length, in microseconds.
	HopUs float64 `yaml:"hop_us" json:"hop_us"`
	// PadBlocks rounds a layer up to whole blocks of N slices, as the card does
	// on the wire. The published formulas leave it out.
	PadBlocks bool `yaml:"pad_blocks" json:"pad_blocks"`
	// UpdateGbytes is the memory bandwidth of the weight update, which moves
	// three times the gradients' bytes, in 10^9 bytes a second; 0: the update
	// counts as compute.
	UpdateGbytes float64 `yaml:"update_gbytes" json:"update_gbytes"`
	Compute      Compute `yaml:"compute" json:"compute"`
	// Naive and Overlapped are the software all-reduces over plain NICs: after
	// the backward pass with all threads, or during it with a few.
	Naive      Software `yaml:"naive" json:"naive"`
	Overlapped Software `yaml:"overlapped" json:"overlapped"`
	// Slowdown is how much longer compute takes while threads are given to
	// communication, from 1.
	Slowdown float64 `yaml:"slowdown" json:"slowdown"`
}

// Compute is how fast a node computes: TFLOPS, or the share that communication
// had of an iteration with plain NICs that do not overlap.
type Compute struct {
	// TFLOPS is 10^12 floating-point operations a second that a node reaches.
	TFLOPS float64 `yaml:"tflops" json:"tflops,omitempty"`
	// Share, above 0 and below 1, is communication's part of the naive
	// iteration of the shipped table Table at Nodes nodes and Batch samples a node.
	Share float64 `yaml:"share" json:"share,omitempty"`
	Table string  `yaml:"table" json:"table,omitempty"`
	Nodes int     `yaml:"nodes" json:"nodes,omitempty"`
	Batch int     `yaml:"batch" json:"batch,omitempty"`
}

// Software is a ring all-reduce by the hosts.
type Software struct {
	// LinkShare is the part of the link's rate that it reaches, above 0 up to 1.
	LinkShare float64 `yaml:"link_share" json:"link_share"`
	// StepUs is what each of its 2(N-1) steps costs besides its bytes, in microseconds.
	StepUs float64 `yaml:"step_us" json:"step_us"`
}

// ShippedSystem returns the system of a name in [Systems].
func ShippedSystem(name string) (*System, error) {
	f, err := shipped.Open("systems/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("system %q: shipped are %s", name, strings.Join(Systems(), ", "))
	}
	defer f.Close()
	return ReadSystem(name, f)
}

// ReadSystem reads a system in YAML. Unknown and repeated keys are errors, as
// are figures that cannot be. name is the file's, for errors.
func ReadSystem(name string, r io.Reader) (*System, error) {
	s := new(System)
	if err := readStrict(name, r, s); err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Check says what about a system cannot be.
func (s *System) Check() error {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch c := s.Compute; {
	case s.Name == "" || s.Source == "":
		return errors.New("name and source are required: say where the figures are from")
	case !positive(s.LinkGbit):
		return fmt.Errorf("link_gbit %g: above 0", s.LinkGbit)
	case !positive(s.HostGbit):
		return fmt.Errorf("host_gbit %g: above 0", s.HostGbit)
	case !finite(s.AdderGbytes, s.HopUs, s.UpdateGbytes):
		return errors.New("adder_gbytes, hop_us and update_gbytes are at least 0")
	case s.SliceBytes < 0 || s.SliceBytes > 1<<40 || s.SliceBytes == 0 && s.PadBlocks:
		return fmt.Errorf("slice_bytes %d: from 0 to 2^40, and above 0 with pad_blocks", s.SliceBytes)
	case !(s.Slowdown >= 1) || math.IsInf(s.Slowdown, 0):
		return fmt.Errorf("slowdown %g: at least 1", s.Slowdown)
	case !finite(c.TFLOPS, c.Share) || (c.TFLOPS > 0) == (c.Share > 0):
		return errors.New("compute: give either tflops or share")
	case c.Share >= 1:
		return fmt.Errorf("compute: share %g: below 1", c.Share)
	case c.Share > 0 && (c.Table == "" || c.Nodes < 2 || c.Nodes > maxNodes || c.Batch < 1 || c.Batch > maxBatch):
		return errors.New("compute: a share needs the table, the nodes (from 2) and the batch at which it was measured")
	case c.TFLOPS > 0 && (c.Table != "" || c.Nodes != 0 || c.Batch != 0):
		return errors.New("compute: table, nodes and batch belong to a share")
	}
	for _, k := range []struct {
		name string
		Software
	}{{"naive", s.Naive}, {"overlapped", s.Overlapped}} {
		if !(k.LinkShare > 0 && k.LinkShare <= 1) || !finite(k.StepUs) {
			return fmt.Errorf("%s: link_share is above 0 and at most 1, step_us at least 0", k.name)
		}
	}
	return nil
}

// Rate is the floating-point operations a second that a node reaches. From a
// share it is the rate with which the naive iteration of the reference has it.
func (s *System) Rate() (float64, error) {
	c := s.Compute
	if c.TFLOPS > 0 {
		return c.TFLOPS * 1e12, nil
	}
	t, err := ShippedTable(c.Table)
	if err != nil {
		return 0, fmt.Errorf("compute: %w", err)
	}
	var comm, update float64
	for _, l := range t.Layers {
		comm += s.PlainAllReduce(t.Bytes(l), c.Nodes, s.Naive).Total
		update += s.update(t.Bytes(l))
	}
	compute := comm*(1-c.Share)/c.Share - update
	if !(compute > 0) {
		return 0, fmt.Errorf("compute: with a share of %g the update alone takes longer than compute may", c.Share)
	}
	return t.FLOPs() * float64(c.Batch) / compute, nil
}

func (s *System) link() float64 { return s.LinkGbit * 1e9 / 8 }
func (s *System) host() float64 { return s.HostGbit * 1e9 / 8 }

func (s *System) update(bytes int64) float64 {
	if s.UpdateGbytes == 0 {
		return 0
	}
	return 3 * float64(bytes) / (s.UpdateGbytes * 1e9)
}
