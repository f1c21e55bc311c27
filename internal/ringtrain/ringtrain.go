// Package ringtrain trains a model with PyTorch's DDP over a ring of NICs: a process for each node, in a network namespace of
// its own, with links of a limited rate, and python/examples/train.py in each.
//
// The same training runs with gradients summed in other ways, to compare with: by gloo over the same links without any
// NIC on them, and by the processes themselves in the ring's order.
package ringtrain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gradnic/host/nic"
	"gradnic/internal/ringlab"
	"gradnic/service/ring"
)

// Ways to sum gradients.
const (
	Gloo    = "gloo"    // DDP's own all-reduce, over TCP
	Ordered = "ordered" // gathered over TCP, added by each process in the ring's order
	NIC     = "nic"     // by the ring of NICs
)

// Options are those of a run. There are no defaults but where it says so.
type Options struct {
	Root    string // of the checkout
	Python  string // "": /usr/bin/python3
	Library string // libgradnic.so
	How     string
	Codec   string // of NIC
	Nodes   int
	Rate    uint64 // bit/s of each node's link; 0: no limit
	Steps   int
	Warm    int // of them, not timed
	Embed   int
	Hidden  int
	Batch   int
	Length  int
	Bucket  float64 // MiB of gradients that are summed together
	Seed    int
}

// Outcome is what a run gave.
type Outcome struct {
	Losses      []float64   // means over the nodes, a step each
	ByNode      [][]float64 // [node][step], to the last bit
	Step        time.Duration
	Parameters  int
	Digest      string // of the parameters in the end, the same on all nodes unless the codec gives nodes different bits
	SameWeights bool
	NICBusy     time.Duration // a step, of the slowest node's NIC
}

// Run trains. It needs root.
func Run(ctx context.Context, o Options) (_ *Outcome, err error) {
	if o.Python == "" {
		o.Python = "/usr/bin/python3"
	}
	if o.Steps <= o.Warm {
		return nil, fmt.Errorf("train %d steps, %d of them to warm up: more are needed", o.Steps, o.Warm)
	}
	l, err := ringlab.New(ringlab.Options{Prefix: "gntrain", Nodes: o.Nodes, Rate: o.Rate, Ring: func(c *ring.Config) { c.DeadAfter = 10 * time.Second }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	dir, err := os.MkdirTemp("", "gradnic-train-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.How == NIC {
		starting, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := l.StartAll(starting); err != nil {
			return nil, err
		}
		for i, n := range l.Nodes {
			s, lerr := nic.Listen(filepath.Join(dir, fmt.Sprint("nic", i)), n.Ring, nic.Options{})
			if lerr != nil {
				return nil, lerr
			}
			defer func() { err = errors.Join(err, n.Ring.Close(), s.Close()) }()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = l.Each(func(i int, n *ringlab.Node) error {
		err := o.process(ctx, dir, i, n)
		if err != nil {
			cancel() // the others would wait for it
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o.collect(dir)
}

// process runs one node's.
func (o *Options) process(ctx context.Context, dir string, i int, n *ringlab.Node) error {
	cmd := n.NS.Command(ctx, o.Python, filepath.Join(o.Root, "python", "examples", "train.py"), "--how", o.How, "--rank", strconv.Itoa(i),
		"--world", strconv.Itoa(o.Nodes), "--rendezvous", fmt.Sprintf("tcp://%v:29500", ringlab.HostIP(0)), "--socket", filepath.Join(dir, fmt.Sprint("nic", i)),
		"--codec", o.Codec, "--text", filepath.Join(o.Root, "internal", "training", "text.txt"), "--steps", strconv.Itoa(o.Steps), "--warm", strconv.Itoa(o.Warm),
		"--embed", strconv.Itoa(o.Embed), "--hidden", strconv.Itoa(o.Hidden), "--batch", strconv.Itoa(o.Batch), "--length", strconv.Itoa(o.Length),
		"--bucket-mb", fmt.Sprint(o.Bucket), "--seed", strconv.Itoa(o.Seed), "--out", o.result(dir, i))
	cmd.Env = append(os.Environ(), "GLOO_SOCKET_IFNAME="+ringlab.Iface, "OMP_NUM_THREADS=1", "GRADNIC_LIBRARY="+o.Library, "PYTHONDONTWRITEBYTECODE=1")
	log, err := os.Create(filepath.Join(dir, fmt.Sprint("log", i)))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := run(n, cmd); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w\n%s", o.How, err, text)
	}
	return nil
}

func run(n *ringlab.Node, cmd *exec.Cmd) error {
	cmd.WaitDelay = 5 * time.Second
	if err := n.NS.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

func (o *Options) result(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprint("result", i))
}

// collect reads what the processes have left.
func (o *Options) collect(dir string) (*Outcome, error) {
	out := &Outcome{Losses: make([]float64, o.Steps), SameWeights: true}
	for i := range o.Nodes {
		var r struct {
			Losses     []string `json:"losses"` // hexadecimal
			Step       float64  `json:"step_s"`
			Parameters int      `json:"parameters"`
			Digest     string   `json:"digest"`
			NICBusy    float64  `json:"nic_busy_s"`
		}
		b, err := os.ReadFile(o.result(dir, i))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		if len(r.Losses) != o.Steps {
			return nil, fmt.Errorf("node %d: %d losses of %d steps", i, len(r.Losses), o.Steps)
		}
		var losses []float64
		for step, s := range r.Losses {
			v, err := strconv.ParseFloat(strings.TrimPrefix(s, "+"), 64)
			if err != nil {
				return nil, fmt.Errorf("node %d: step %d: %w", i, step, err)
			}
			losses = append(losses, v)
			out.Losses[step] += v / float64(o.Nodes)
		}
		out.ByNode = append(out.ByNode, losses)
		out.Step = max(out.Step, time.Duration(r.Step*1e9))
		out.NICBusy = max(out.NICBusy, time.Duration(r.NICBusy*1e9/float64(o.Steps)))
		out.SameWeights = out.SameWeights && (i == 0 || r.Digest == out.Digest)
		if i == 0 {
			out.Digest, out.Parameters = r.Digest, r.Parameters
		}
	}
	return out, nil
}

// Far is the largest distance between the losses of two runs, over nodes and the steps of a, relative to the loss. b has at
// least as many steps.
func Far(a, b *Outcome) (far float64) {
	for i := range a.ByNode {
		for step, v := range a.ByNode[i] {
			d := (v - b.ByNode[i][step]) / v
			far = max(far, d, -d)
		}
	}
	return far
}
