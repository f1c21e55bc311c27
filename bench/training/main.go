// Command training trains a small language model with eight workers through the NIC, once with each of some codecs, and leaves
// build/bench/training.json, the losses as a plot and a table in the docs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"gradnic/bench/report"
	"gradnic/internal/demo"
	"gradnic/internal/training"
)

// contestants are the codecs; the first is what the others are held against. topk has error feedback, thc two jobs.
const contestants = "none,bfp16,mxfp8-e4m3,mxfp4,topk,qsgd,thc"

func main() {
	codecs := flag.String("codecs", contestants, "codecs, the first of which is the yardstick")
	steps := flag.Int("steps", 200, "steps")
	out := flag.String("json", "build/bench/training.json", "report")
	svg := flag.String("svg", "", "write the plot of the losses to this file")
	page := flag.String("page", "", "put the table into this page")
	from := flag.String("from", "", "train nothing: take the report of an earlier run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var r *report.Report
	var err error
	if *from != "" {
		r, err = report.Read(*from)
	} else if r, err = run(ctx, strings.Split(*codecs, ","), *steps); err == nil {
		err = r.WriteFile(*out)
	}
	if err == nil {
		err = show(r, *svg, *page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "training:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, codecs []string, steps int) (*report.Report, error) {
	r := report.New("make train")
	r.Title = "Training through the NIC"
	size := training.DefaultSize
	losses := report.Plot{Title: "Loss in training, mean of eight steps", X: "step", Y: "nats a character"}
	finals := map[string]*training.Result{}
	for _, codec := range codecs {
		started := time.Now()
		result, transport, packets, sent, received, err := train(ctx, codec, steps)
		if err != nil {
			return nil, fmt.Errorf("codec %s: %w", codec, err)
		}
		finals[codec] = result
		fmt.Printf("%-12s %s: final loss %.4f, on text held back %.4f, %d packets a step, %.1f s\n", codec, transport, result.Final, result.Held, packets, time.Since(started).Seconds())
		first := finals[codecs[0]]
		final := report.Row{Name: "loss/" + codec, Unit: "nats", Against: "loss/" + codecs[0]}
		held := report.Row{Name: "held-back/" + codec, Unit: "nats", Against: "held-back/" + codecs[0]}
		if codec == "bfp16" {
			final.Goal, final.Bound = 1.01, "at most the goal"
		}
		r.Add(final, []float64{result.Final}, []float64{first.Final})
		r.Add(held, []float64{result.Held}, []float64{first.Held})
		r.Add(report.Row{Name: "packets/" + codec, Unit: "a step and worker"}, []float64{float64(packets)}, nil)
		r.Add(report.Row{Name: "sent/" + codec, Unit: "bytes of values a step and worker"}, []float64{float64(sent)}, nil)
		r.Add(report.Row{Name: "received/" + codec, Unit: "bytes of values a step and worker"}, []float64{float64(received)}, nil)
		const every = 8
		for at := 0; at+every <= len(result.Losses); at += every {
			mean := 0.0
			for _, l := range result.Losses[at : at+every] {
				mean += l / every
			}
			losses.At(codec, float64(at+every/2), []float64{mean})
		}
		if codec == codecs[0] {
			r.Notes = append(r.Notes, fmt.Sprintf("8 workers over %s, %d steps, %d parameters, 64 sequences of %d characters a step, AdamW 3e-3; gradients are summed in order of rank, so a run repeats to the last bit", transport, steps, size.Parameters(), size.Steps))
		}
	}
	r.Plots = append(r.Plots, losses)
	return r, nil
}

// show writes the plot and the table.
func show(r *report.Report, svg, page string) error {
	if svg != "" && len(r.Plots) > 0 {
		if err := r.Plots[0].WriteSVG(svg); err != nil {
			return err
		}
	}
	table := table(r)
	if page == "" {
		_, err := fmt.Print(table)
		return err
	}
	return report.ReplaceText(page, "training", table)
}

// table is a line for each codec.
func table(r *report.Report) string {
	value := r.ByName()
	var codecs []string
	for _, row := range r.Rows {
		if codec, ok := strings.CutPrefix(row.Name, "loss/"); ok {
			codecs = append(codecs, codec)
		}
	}
	var b strings.Builder
	b.WriteString(r.Made())
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "%s.\n", note)
	}
	b.WriteString("\n| codec | loss | of the first | held back | of the first | packets | kB sent | kB received |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range codecs {
		loss, held := value["loss/"+c], value["held-back/"+c]
		fmt.Fprintf(&b, "| `%s` | %.4f | %.4f | %.4f | %.4f | %.0f | %.1f | %.1f |\n",
			c, loss.Value, loss.Ratio, held.Value, held.Ratio, value["packets/"+c].Value, value["sent/"+c].Value/1e3, value["received/"+c].Value/1e3)
	}
	return b.String()
}

// train runs one codec over a NIC of its own.
func train(ctx context.Context, codec string, steps int) (result *training.Result, transport string, packets, sent, received int, err error) {
	s, err := demo.NewSession(ctx, demo.Options{Workers: workers, Root: os.Geteuid() == 0})
	if err != nil {
		return nil, "", 0, 0, 0, err
	}
	defer func() {
		if _, cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	way := overCodec
	if codec == "thc" {
		way = overTHC
	}
	w, err := way(ctx, s, codec)
	if err != nil {
		return nil, "", 0, 0, 0, err
	}
	defer func() {
		if lerr := w.leave(); err == nil {
			err = lerr
		}
	}()
	result, err = training.Run(training.Options{Steps: steps, Seed: 1}, w.mean)
	return result, s.Transport, w.packets, w.sent, w.received, err
}
