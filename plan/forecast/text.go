package forecast

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Find returns the mode of a name, or those that there are.
func (d *Document) Find(mode string) (*Mode, error) {
	var names []string
	for i := range d.Modes {
		if d.Modes[i].Mode == mode {
			return &d.Modes[i], nil
		}
		names = append(names, d.Modes[i].Mode)
	}
	return nil, fmt.Errorf("mode %q: one of %s", mode, strings.Join(names, ", "))
}

// Text writes the document for people, with the layers of one mode; an empty
// name stands for the last, which has most that is smart.
func (d *Document) Text(w io.Writer, mode string) error {
	shown := &d.Modes[len(d.Modes)-1]
	if mode != "" {
		m, err := d.Find(mode)
		if err != nil {
			return err
		}
		shown = m
	}
	fmt.Fprintf(w, "%s: %d layers, %d parameters, %.4g MB of gradients\n", d.Table, d.Layers, d.Parameters, float64(d.GradientBytes)/1e6)
	fmt.Fprintf(w, "system %s: link %g Gb/s, host link %g Gb/s, %.4g TFLOPS a node%s; %s makes %.4g bytes one\n\n",
		d.System.Name, d.System.LinkGbit, d.System.HostGbit, d.TFLOPS, d.rateFrom(), d.Codec, d.Ratio)

	fmt.Fprintf(w, "%d nodes, %d %s a node:\n", d.Nodes, d.Batch, d.sample())
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "mode\titeration ms\tforward ms\tbackward ms\tupdate ms\tcommunication ms\texposed ms\tspeed-up\tceiling\t")
	for _, m := range d.Modes {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", m.Mode, m.Iteration, m.Forward, m.Backward, m.Update, m.Communication, m.Exposed, m.SpeedUp, m.Ceiling)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintf(w, "speed-up: over overlapped; ceiling: the iteration over its compute alone, the most that any NIC gains over that mode\n")

	fmt.Fprintf(w, "\n%s, backward, layer by layer:\n", shown.Mode)
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "layer\tKiB\tbackward from\tto ms\tall-reduce from\tto ms\tring ms\tadd ms\thost ms\tfill ms\tbound\t")
	for i := len(shown.Timeline) - 1; i >= 0; i-- {
		l := shown.Timeline[i]
		fmt.Fprintf(t, "%s\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t\n", l.Layer, float64(l.Bytes)/1024, l.Backward[0], l.Backward[1],
			l.AllReduce[0], l.AllReduce[1], l.Ring, l.Add, l.Host, l.Fill, l.Bound)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintf(w, "\nspeed-up against plain NICs (overlapped; in brackets: against the fastest of the plain ways):\n")
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "batch\tnodes\tnaive ms\toverlapped ms\tnic ms\t%s ms\tnic\t\t%s\t\tceiling\tover naive\t\n", d.compressed(), d.compressed())
	for _, p := range d.ByNodes {
		fmt.Fprintf(t, "%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t(%.3f)\t%.3f\t(%.3f)\t%.3f\t%.3f\t\n", p.Batch, p.Nodes, p.Naive, p.Plain, p.NIC, p.Compressed,
			p.SpeedUpNIC, p.LeastNIC, p.SpeedUp, p.Least, p.Ceiling, p.CeilingNaive)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(d.Published) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nbeside the paper (arXiv 2204.10943; docs/model.md explains the differences):\n")
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "what\tnodes\tbatch\tpaper\tmodel\t")
	for _, p := range d.Published {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%.3f\t%s\n", p.What, p.Nodes, p.Batch, p.figure(), p.Model, p.Note)
	}
	return t.Flush()
}

func (p Published) figure() string {
	if p.AtMost {
		return fmt.Sprintf("at most %g", p.Paper)
	}
	return fmt.Sprintf("%g", p.Paper)
}

// compressed names the ring with the codec.
func (d *Document) compressed() string { return "nic+" + d.Codec }

func (d *Document) sample() string {
	if d.Sample == "" {
		return "samples"
	}
	return d.Sample
}

func (d *Document) rateFrom() string {
	c := d.System.Compute
	if c.TFLOPS > 0 {
		return ""
	}
	return fmt.Sprintf(" (so that communication is %.3g %% of the naive iteration of %s at %d nodes, batch %d)", c.Share*100, c.Table, c.Nodes, c.Batch)
}
