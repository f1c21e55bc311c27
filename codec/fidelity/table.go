package fidelity

import (
	"fmt"
	"io"
	"text/tabwriter"

	"gradnic/codec"
)

// Document is what `gradnic codec eval -j` prints.
type Document struct {
	File    string   `json:"file"`
	Data    Data     `json:"data"`
	Message int      `json:"message_elements"`
	Seed    uint64   `json:"seed"`
	Codecs  []Result `json:"codecs"`
}

// Table writes the document for people.
func (d Document) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d elements, %d zeros, %d not finite, largest magnitude %.4g, rms %.4g; copy %s GB/s\n\n",
		d.File, d.Data.Elements, d.Data.Zeros, d.Data.NonFinite, d.Data.MaxAbs, d.Data.RMS, rateText(d.Data.Copy))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "codec\tratio\tNMSE\tmax error\tof bound\tbias/rms\tcosine\tflagged\tencode GB/s\tdecode GB/s\t")
	for _, r := range d.Codecs {
		fmt.Fprintf(t, "%s\t%.3f\t%.3g\t%.3g\t%.2f\t%+.2g\t%.7f\t%d\t%s\t%s\t\n",
			r.Codec, r.Ratio, r.NMSE, r.MaxError, r.Share, r.RelativeBias, r.Cosine, r.Flagged, rateText(r.Encode), rateText(r.Decode))
	}
	return t.Flush()
}

// rateText is a rate as people read it; one that was not measured is a dash.
func rateText(gbPerSecond float64) string {
	if gbPerSecond == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", gbPerSecond)
}

// Codec is one line of `gradnic show codecs`.
type Codec struct {
	codec.Info
	Ratio float64 `json:"ratio"`
	// Bytes is the worst case for 64, 256 and 8192 elements: a short packet, a
	// long one, and a slice of the ring.
	Bytes struct {
		Packet64  int `json:"64"`
		Packet256 int `json:"256"`
		Slice8192 int `json:"8192"`
	} `json:"worst_case_bytes"`
	// State is the memory of a sender or receiver that does not depend on the
	// length; FeedbackState that of error feedback an element.
	State         int64 `json:"state_bytes"`
	FeedbackState int64 `json:"feedback_state_bytes_per_element"`
	Default       bool  `json:"default"`
}

// List describes the table of codecs.
func List() []Codec {
	var out []Codec
	for _, c := range codec.All() {
		l := Codec{Info: c.Info(), Ratio: c.Info().Ratio(), Default: c.Info().Name == codec.Default}
		l.Bytes.Packet64, l.Bytes.Packet256, l.Bytes.Slice8192 = c.MaxEncoded(64), c.MaxEncoded(256), c.MaxEncoded(8192)
		l.State = codec.StateBytes(c, 0, false)
		l.FeedbackState = codec.StateBytes(c, 1, true) - l.State
		out = append(out, l)
	}
	return out
}

// TableList writes the table of codecs for people.
func TableList(w io.Writer, list []Codec) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tRATIO\tBLOCK\tBYTES/256\tPROPERTIES\tERROR BOUND")
	for _, c := range list {
		props := ""
		for _, p := range []struct {
			on   bool
			name string
		}{{c.Default, "default"}, {c.Lossless, "lossless"}, {c.Stochastic, "stochastic"}, {c.Feedback, "feedback"}, {c.Sums, "sums"}, {c.Vector, "vector"}} {
			if p.on {
				if props != "" {
					props += ","
				}
				props += p.name
			}
		}
		fmt.Fprintf(t, "%d\t%s\t%.3f\t%d\t%d\t%s\t%s\n", c.ID, c.Name, c.Ratio, c.Info.Block, c.Bytes.Packet256, props, c.Bound)
	}
	return t.Flush()
}
