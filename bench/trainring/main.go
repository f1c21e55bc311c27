// Command trainring trains a small language model with PyTorch over a ring of NICs, and with gloo over the same links, and
// leaves build/bench/trainring.json, the losses as a plot and a table in the docs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"gradnic/bench/report"
	"gradnic/internal/ringtrain"
)

type flags struct {
	nodes, codecs            string
	steps, rounds, rate      int
	out, svg, page, from, so string
}

func main() {
	var f flags
	flag.StringVar(&f.nodes, "nodes", "2,4", "numbers of nodes, separated by commas")
	flag.StringVar(&f.codecs, "codecs", "none,bfp16,bfp16-intel", "formats between NICs")
	flag.IntVar(&f.steps, "steps", 100, "steps of the longest run, whose losses are shown")
	flag.IntVar(&f.rounds, "rounds", 3, "how often each contestant takes its turn; after the first with a quarter of the steps")
	flag.IntVar(&f.rate, "rate-mbit", 100, "rate of each node's link, in 10^6 bits a second")
	flag.StringVar(&f.so, "library", "build/libgradnic.so", "the C library")
	flag.StringVar(&f.out, "json", "build/bench/trainring.json", "report")
	flag.StringVar(&f.svg, "svg", "", "write the plot of the losses to this file")
	flag.StringVar(&f.page, "page", "", "put the table into this page")
	flag.StringVar(&f.from, "from", "", "train nothing: take the report of an earlier run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r *report.Report
	var err error
	if f.from != "" {
		r, err = report.Read(f.from)
	} else if r, err = f.run(ctx); err == nil {
		err = r.WriteFile(f.out)
	}
	if err == nil {
		err = show(r, f.svg, f.page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "trainring:", err)
		os.Exit(1)
	}
}

// contestant is a way to sum.
type contestant struct{ name, how, codec string }

// run lets all take turns, for each number of nodes.
func (f *flags) run(ctx context.Context) (*report.Report, error) {
	so, err := filepath.Abs(f.so)
	if err != nil {
		return nil, err
	}
	r := report.New("make train-ring")
	r.Title = "Training over a ring of NICs"
	o := ringtrain.Options{
		Root: ".", Library: so, Rate: uint64(f.rate) * 1e6, Steps: f.steps, Warm: 3,
		Embed: 64, Hidden: 384, Batch: 16, Length: 8, Bucket: 0.5, Seed: 1,
	}
	if o.Root, err = filepath.Abs(o.Root); err != nil {
		return nil, err
	}
	ways := []contestant{{"gloo", ringtrain.Gloo, "none"}}
	for c := range strings.SplitSeq(f.codecs, ",") {
		ways = append(ways, contestant{"ring, " + c, ringtrain.NIC, c})
	}
	for list := strings.Split(f.nodes, ","); len(list) > 0; list = list[1:] {
		if o.Nodes, err = strconv.Atoi(strings.TrimSpace(list[0])); err != nil {
			return nil, fmt.Errorf("nodes: %w", err)
		}
		plot := report.Plot{Title: fmt.Sprintf("Loss in training on %d nodes, mean of five steps", o.Nodes), X: "seconds", Y: "nats a character"}
		if err := f.turns(ctx, r, o, ways, &plot); err != nil {
			return nil, err
		}
		r.Plots = append(r.Plots, plot)
	}
	return r, nil
}

// turns trains with each contestant, round by round, and compares.
func (f *flags) turns(ctx context.Context, r *report.Report, o ringtrain.Options, ways []contestant, losses *report.Plot) error {
	train := func(w contestant) (*ringtrain.Outcome, error) {
		o.How, o.Codec = w.how, w.codec
		x, err := ringtrain.Run(ctx, o)
		if err == nil {
			fmt.Printf("%d nodes, %-18s %6.1f ms a step, loss %.4f to %.4f\n", o.Nodes, w.name, x.Step.Seconds()*1e3, x.Losses[0], x.Losses[o.Steps-1])
		}
		return x, err
	}
	ordered, err := train(contestant{"in the ring's order", ringtrain.Ordered, "none"})
	if err != nil {
		return err
	}
	times := make([][]float64, len(ways))
	first := make([]*ringtrain.Outcome, len(ways))
	for round := range f.rounds {
		if round == 1 {
			o.Steps = max(o.Steps/4, min(o.Steps, 15)) // for the time only
		}
		for i, w := range ways {
			x, err := train(w)
			if err != nil {
				return err
			}
			times[i] = append(times[i], x.Step.Seconds()*1e3)
			if round == 0 {
				first[i] = x
			} else if ringtrain.Far(x, first[i]) != 0 {
				return fmt.Errorf("%s on %d nodes: the same run gave other losses", w.name, o.Nodes)
			}
		}
	}
	o.Steps = f.steps
	prefix := fmt.Sprint(o.Nodes, "/")
	for i, w := range ways {
		row := report.Row{Name: prefix + w.name + "/step", Unit: "ms", Against: prefix + "gloo/step"}
		r.Add(row, times[i], times[0])
		r.Add(report.Row{Name: prefix + w.name + "/far-from-ordered", Unit: "of the loss, largest of any node and step"}, []float64{ringtrain.Far(ordered, first[i])}, nil)
		r.Add(report.Row{Name: prefix + w.name + "/far-from-gloo", Unit: "of the loss, largest of any node and step"}, []float64{ringtrain.Far(first[0], first[i])}, nil)
		r.Add(report.Row{Name: prefix + w.name + "/final", Unit: "nats, mean of the last tenth"}, []float64{final(first[i].Losses)}, nil)
		if w.codec == "none" && w.how == ringtrain.NIC && (ringtrain.Far(ordered, first[i]) != 0 || first[i].Digest != ordered.Digest) {
			return fmt.Errorf("%d nodes: the ring without compression does not give what its order gives", o.Nodes)
		}
		const every = 5
		for at := 0; at+every <= o.Steps; at += every {
			losses.At(w.name, (float64(at)+every/2)*report.Median(times[i])/1e3, []float64{final(first[i].Losses[:at+every][at:])})
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%d nodes: %d parameters, %d steps of %d sequences of %d characters a node, AdamW 3e-3, buckets of %g MiB, links of %g Mbit/s", o.Nodes,
		first[0].Parameters, o.Steps, o.Batch, o.Length, o.Bucket, float64(o.Rate)/1e6))
	return nil
}

// final is the mean of the last tenth, of at most five all.
func final(losses []float64) (mean float64) {
	n := max(len(losses)/10, min(len(losses), 5))
	for _, v := range losses[len(losses)-n:] {
		mean += v / float64(n)
	}
	return mean
}

// show writes the plot of the most nodes, and the table.
func show(r *report.Report, svg, page string) error {
	if svg != "" && len(r.Plots) > 0 {
		if err := r.Plots[len(r.Plots)-1].WriteSVG(svg); err != nil {
			return err
		}
	}
	table := table(r)
	fmt.Print(table)
	for _, file := range strings.FieldsFunc(page, func(c rune) bool { return c == ',' }) {
		if err := report.ReplaceText(file, "train-ring", table); err != nil {
			return err
		}
	}
	return nil
}

// table is a line for each contestant and number of nodes.
func table(r *report.Report) string {
	value := r.ByName()
	var ways []string
	for _, row := range r.Rows {
		if name, ok := strings.CutSuffix(row.Name, "/step"); ok {
			ways = append(ways, name)
		}
	}
	var b strings.Builder
	b.WriteString(r.Made())
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "%s.\n", note)
	}
	b.WriteString("\n| nodes | gradients summed by | ms a step | speed-up | loss in the end | losses off the ring's order | off gloo's |\n|---:|---|---:|---:|---:|---:|---:|\n")
	for _, w := range ways {
		nodes, name, _ := strings.Cut(w, "/")
		step := value[w+"/step"]
		speedUp := 1.0
		if step.Ratio > 0 {
			speedUp = 1 / step.Ratio
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f | %.4f | %s | %s |\n", nodes, name, step.Value, speedUp, value[w+"/final"].Value,
			off(value[w+"/far-from-ordered"].Value), off(value[w+"/far-from-gloo"].Value))
	}
	return b.String()
}

func off(v float64) string {
	if v == 0 {
		return "0, to the last bit"
	}
	return fmt.Sprintf("%.1g", v)
}
