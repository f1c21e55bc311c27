package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Sender is what Replay sends to, a Link for example.
type Sender interface {
	Send(frame []byte) error
}

// ReplayOptions say how a capture is replayed.
type ReplayOptions struct {
	// Speed is a factor: 1 is as recorded, 2 twice as fast; 0 means 1. Max sends without waiting.
	Speed float64
	Max   bool
	// Longest leaves out longer frames; 0: none.
	Longest int
	// Count ends after so many frames; 0: all.
	Count int
}

// Replayed is what became of a replay.
type Replayed struct {
	Frames  int           `json:"frames"`
	Bytes   int64         `json:"bytes"`
	Cut     int           `json:"cut"`  // were recorded cut, and are not sent
	Long    int           `json:"long"` // longer than Longest, not sent
	Took    time.Duration `json:"took_ns"`
	Span    time.Duration `json:"recorded_ns"` // between first and last, as recorded
	Latest  time.Duration `json:"latest_ns"`   // the most that a frame was sent behind its time
	started time.Time
	first   time.Time
}

// sleepShort is how much earlier than due a sleep ends; the rest is waited for by looking at the clock, since timers are
// late by about that.
const sleepShort = 100 * time.Microsecond

// Replay sends the frames of a capture (pcap or pcapng, Ethernet) in its order, at the distances in which they were
// recorded, or these divided by the speed. A frame that is late is sent at once, so that delays do not add up.
func Replay(ctx context.Context, path string, to Sender, o ReplayOptions) (r Replayed, err error) {
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Speed < 0 {
		return r, fmt.Errorf("replay: speed %v: a factor above 0", o.Speed)
	}
	c, err := openCapture(path)
	if err != nil {
		return r, err
	}
	defer c.close()
	for o.Count == 0 || r.Frames < o.Count {
		data, ci, err := c.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, r.ended(path, r.Frames+r.Cut+r.Long+1, err)
		}
		if ci.CaptureLength < ci.Length {
			r.Cut++
			continue
		}
		if o.Longest > 0 && len(data) > o.Longest {
			r.Long++
			continue
		}
		if err := r.await(ctx, ci.Timestamp, &o); err != nil {
			return r, r.ended(path, r.Frames+r.Cut+r.Long+1, err)
		}
		if err := to.Send(data); err != nil {
			return r, r.ended(path, r.Frames+r.Cut+r.Long+1, err)
		}
		r.Frames++
		r.Bytes += int64(len(data))
	}
	if r.Frames > 0 {
		r.Took = time.Since(r.started)
	}
	return r, nil
}

// ended is why a replay ended at a frame of the capture, counted from 1.
func (r *Replayed) ended(path string, frame int, err error) error {
	return fmt.Errorf("replay %s: frame %d: %w (%d frames were sent before)", path, frame, err, r.Frames)
}

// await waits until a frame is due.
func (r *Replayed) await(ctx context.Context, at time.Time, o *ReplayOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.Frames == 0 {
		r.started, r.first = time.Now(), at
		return nil
	}
	r.Span = max(r.Span, at.Sub(r.first))
	if o.Max {
		return nil
	}
	due := r.started.Add(time.Duration(float64(at.Sub(r.first)) / o.Speed))
	if left := time.Until(due); left > sleepShort {
		t := time.NewTimer(left - sleepShort)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for time.Until(due) > 0 {
	}
	r.Latest = max(r.Latest, -time.Until(due))
	return nil
}

// openCapture tells pcap and pcapng apart by their first bytes.
func openCapture(path string) (*captureFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	c, err := newCaptureFile(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return c, nil
}
