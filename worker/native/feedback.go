package native

import (
	"context"
	"fmt"
)

// Feedback is the memory of error feedback for one array that is all-reduced again and again, such as a layer's gradients: what
// the codec left out of earlier contributions, which is added to the next one. It belongs to one worker of one job.
type Feedback struct {
	w        *Worker
	residual []float32
	closed   bool
}

// NewFeedback makes the feedback for arrays of n elements, 4n bytes. It fails when the worker's FeedbackBytes are used up, and
// for jobs without a codec, which lose nothing.
func (w *Worker) NewFeedback(n int) (*Feedback, error) {
	e := w.e
	if e.coder == nil {
		return nil, fmt.Errorf("feedback: the job has no codec: nothing is lost that could be fed back")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if most := e.cfg.FeedbackBytes - e.feedback; n < 0 || int64(n) > most/4 {
		return nil, fmt.Errorf("feedback of %d elements: %d of %d bytes are left", n, most, e.cfg.FeedbackBytes)
	}
	e.feedback += 4 * int64(n)
	return &Feedback{w: w, residual: make([]float32, n)}, nil
}

// Residual is what was left out so far. It must not be touched while an all-reduce with it runs.
func (f *Feedback) Residual() []float32 { return f.residual }

// Reset forgets what was left out, as after an all-reduce that failed.
func (f *Feedback) Reset() { clear(f.residual) }

// Close gives the memory back to the worker's limit.
func (f *Feedback) Close() {
	if f.closed {
		return
	}
	f.closed = true
	f.w.e.mu.Lock()
	f.w.e.feedback -= 4 * int64(len(f.residual))
	f.w.e.mu.Unlock()
}

// StartAllReduceFeedback is StartAllReduce with error feedback: src plus what is left of earlier calls is encoded, and what the
// codec leaves out now is kept for the next one. f was made for as many elements, and one call at a time may use it.
func StartAllReduceFeedback(w *Worker, dst, src []float32, f *Feedback) (*Pending, error) {
	switch {
	case len(dst) != len(src):
		return nil, fmt.Errorf("dst has %d elements, src %d", len(dst), len(src))
	case f.w != w || f.closed || len(f.residual) != len(src):
		return nil, fmt.Errorf("the feedback is not this worker's, closed, or for %d elements, not %d", len(f.residual), len(src))
	}
	if err := fits[float32](w.e.job.Type); err != nil {
		return nil, err
	}
	return w.start(len(src),
		func(lo, hi int, b []byte) { put(b, src[lo:hi]) },
		func(lo, hi int, b []byte) { get(dst[lo:hi], b) }, floatsOf(w, dst, src, f))
}

// AllReduceFeedback is StartAllReduceFeedback and Wait.
func AllReduceFeedback(ctx context.Context, w *Worker, dst, src []float32, f *Feedback) (Stats, error) {
	p, err := StartAllReduceFeedback(w, dst, src, f)
	return wait(ctx, p, err, "all-reduce with error feedback")
}
