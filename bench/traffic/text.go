package traffic

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"gradnic/bench/sink"
	"gradnic/xdp"
)

// Write writes the run for people.
func (s *Sent) Write(w io.Writer) error {
	p := printer{w: w}
	p.line("%s generator, %s, asked %s for %v", s.Kind, s.Flow, s.AskedRate, s.For)
	p.line("sent       %d frames in %v: %.4f Mpps, %.3f Gbit/s L1 (preamble, gap, FCS), %.3f Gbit/s L2 (FCS)", s.Frames,
		s.Elapsed.Round(time.Microsecond), s.PPS()/1e6, s.L1/1e9, s.L2/1e9)
	if s.Asked > 0 {
		p.line("of asked   %d frames, %.3f %%", s.Asked, 100*float64(s.Frames)/float64(s.Asked))
	}
	if c := s.Counts; c.Skipped+c.Duplicated+c.Reordered+c.Malformed > 0 {
		p.line("on purpose %d numbers left out, %d frames twice, %d behind the next, %d malformed", c.Skipped, c.Duplicated, c.Reordered, c.Malformed)
	}
	if len(s.Queues) > 1 {
		for _, q := range s.Queues {
			p.line("queue %-4d %d of %d frames in %v", q.Queue, q.Frames, q.Asked, q.Elapsed.Round(time.Microsecond))
		}
	}
	if s.Invalid != "" {
		p.line("%s", s.Invalid)
	}
	return p.err
}

// Write writes the plan for people.
func (p *Plan) Write(w io.Writer) error {
	out := printer{w: w}
	for _, f := range p.Sizes {
		line := ""
		if f.LinePPS > 0 {
			line = "; line rate " + frameRate(f.LinePPS)
		}
		out.line("frame %d B, with FCS %d B, on the wire %d B%s", f.Frame, f.L2, f.L1, line)
	}
	queues := "1 queue"
	if p.Queues > 1 {
		queues = fmt.Sprintf("%d queues", p.Queues)
	}
	if p.PPS == 0 {
		out.line("as fast as it goes, from %s", queues)
	} else {
		out.line("%s is %s over %s", p.AskedRate, frameRate(p.PPS), queues)
	}
	return out.err
}

// frameRate is a rate in four digits.
func frameRate(pps float64) string {
	if pps < 1e4 {
		return fmt.Sprintf("%.4g pps", pps)
	}
	return fmt.Sprintf("%.4g Mpps", pps/1e6)
}

// WriteSummary writes what a sink received for people.
func WriteSummary(w io.Writer, s *sink.Summary) error {
	p := printer{w: w}
	p.line("received   %d frames, %d bytes, of %d streams; %d of something else", s.Frames, s.Bytes, s.Streams, s.Other)
	p.line("numbers    %d came, %d lost between first and last, %d twice, %d late", s.Unique, s.Lost, s.Duplicates, s.Reordered)
	p.line("damaged    %d", s.Damaged)
	if s.Latency != nil {
		p.line("latency    %v", s.Latency)
	}
	return p.err
}

// Write writes the device's account for people.
func (r *DeviceReport) Write(w io.Writer) error {
	p := printer{w: w}
	c := &r.Counters
	p.line("received %d frames, passed %d, transmitted %d, dropped %d; lost before: %d too long, %d ring full, %d for want of chunks", c.Received, c.Passed,
		c.Transmitted, c.Dropped(), r.Port.Kernel.RxDropped, r.Port.Kernel.RxRingFull, r.Port.Kernel.FillRingEmpty)
	if n := r.Port.Steering[xdp.Reflected.String()] + r.Port.Steering[xdp.Sunk.String()]; n > 0 {
		p.line("in the kernel: %d frames sent back, %d dropped as asked", r.Port.Steering[xdp.Reflected.String()], r.Port.Steering[xdp.Sunk.String()])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Driver)) {
		p.line("driver   %s %d", name, r.Driver[name])
	}
	if g := r.Pktgen; g != nil {
		p.line("pktgen   %d frames, %d others, %d of senders beyond the account", g.Frames, g.Other, g.Untracked)
		for _, s := range g.Streams {
			p.line("sender   %v %v: %d came, %d lost, %d twice, %d late", s.MAC, s.IP, s.Unique, s.Lost, s.Duplicates, s.Reordered)
		}
		if l := g.Latency; l != nil {
			p99 := "not from under 1000 samples"
			if l.P99 > 0 {
				p99 = fmt.Sprintf("%.1f us", l.P99)
			}
			p.line("latency  p50 %.1f us, p99 %s, max %.1f us; %d samples", l.P50, p99, l.Max, l.Samples)
		}
	}
	return p.err
}

// printer writes lines until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", a...)
	}
}
