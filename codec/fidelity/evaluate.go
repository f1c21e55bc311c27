package fidelity

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gradnic/codec"
)

// Options are the choices of Evaluate.
type Options struct {
	// Seed is the seed of the stochastic codecs.
	Seed uint64
	// Repeats is the number of timed runs of which the median counts; 0 means
	// 9, a negative number none (rates are then 0).
	Repeats int
	// Message is the number of elements in a message; 0 means all in one.
	Message int
}

// Result is what one codec did to the data.
type Result struct {
	Codec string   `json:"codec"`
	ID    codec.ID `json:"id"`
	// Bytes on the wire, and the ratio of 4 bytes an element to it.
	Bytes int     `json:"bytes"`
	Ratio float64 `json:"ratio"`
	// NMSE is the sum of squared errors over the sum of squares.
	NMSE float64 `json:"nmse"`
	// MaxError is the largest absolute error, Share the largest part of its
	// stated bound that any element's error used up (0 where the bound is 0).
	MaxError float64 `json:"max_error"`
	Share    float64 `json:"share_of_bound"`
	// Bias is the mean error, RelativeBias over the root mean square of the
	// data.
	Bias         float64 `json:"bias"`
	RelativeBias float64 `json:"relative_bias"`
	// Cosine is the cosine between data and result.
	Cosine float64 `json:"cosine"`
	// Flagged elements came back as an infinity or a NaN. They, and those
	// elements of the data that are not finite, are left out of the figures.
	Flagged int `json:"flagged"`
	// Rates in 10^9 bytes of float32 a second, one goroutine.
	Encode float64 `json:"encode_gb_per_s"`
	Decode float64 `json:"decode_gb_per_s"`
}

// Data is what is known of the data itself.
type Data struct {
	Elements  int     `json:"elements"`
	NonFinite int     `json:"non_finite"`
	Zeros     int     `json:"zeros"`
	MaxAbs    float64 `json:"max_abs"`
	RMS       float64 `json:"rms"`
	// Exponents counts the finite, non-zero elements by floor(log2|x|).
	Exponents map[int]int `json:"exponents"`
	// Copy is the rate of copying the data: the yardstick of the rates.
	Copy float64 `json:"copy_gb_per_s"`
}

// Describe looks at the data.
func Describe(x []float32, o Options) Data {
	d := Data{Elements: len(x), Exponents: map[int]int{}}
	sum := 0.0
	for _, v := range x {
		a := math.Abs(float64(v))
		switch {
		case a-a != 0:
			d.NonFinite++
			continue
		case a == 0:
			d.Zeros++
		default:
			_, e := math.Frexp(a)
			d.Exponents[e-1]++
		}
		d.MaxAbs = max(d.MaxAbs, a)
		sum += a * a
	}
	if n := len(x) - d.NonFinite; n > 0 {
		d.RMS = math.Sqrt(sum / float64(n))
	}
	y := make([]float32, len(x))
	d.Copy = rate(len(x), o.repeats(), func() { copy(y, x) })
	return d
}

func (o Options) repeats() int {
	if o.Repeats == 0 {
		return 9
	}
	return max(o.Repeats, 0)
}

// Evaluate sends x through every codec and compares. It fails only when a codec
// cannot decode what it encoded, or an error exceeds the bound that the codec
// states: then the codec is broken.
func Evaluate(x []float32, codecs []codec.Codec, o Options) ([]Result, error) {
	var out []Result
	for _, c := range codecs {
		r, err := evaluate(x, c, o)
		if err != nil {
			return nil, fmt.Errorf("evaluate %s: %w", c.Info().Name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func evaluate(x []float32, c codec.Codec, o Options) (Result, error) {
	size := o.Message
	if size <= 0 || size > len(x) {
		size = max(len(x), 1)
	}
	messages := (len(x) + size - 1) / size
	worst := c.MaxEncoded(size)
	buf := make([]byte, messages*worst)
	lengths := make([]int, messages)
	st := codec.NewState(c, size, codec.StateOptions{Seed: o.Seed})
	encode := func() error {
		for m := range messages {
			st.Round = uint64(m)
			n, err := c.Encode(buf[m*worst:(m+1)*worst], x[m*size:min((m+1)*size, len(x))], st)
			if err != nil {
				return err
			}
			lengths[m] = n
		}
		return nil
	}
	y := make([]float32, len(x))
	decode := func() error {
		for m := range messages {
			st.Round = uint64(m)
			if err := c.Decode(y[m*size:min((m+1)*size, len(x))], buf[m*worst:m*worst+lengths[m]], st); err != nil {
				return err
			}
		}
		return nil
	}
	if err := encode(); err != nil {
		return Result{}, err
	}
	if err := decode(); err != nil {
		return Result{}, err
	}
	r := Result{Codec: c.Info().Name, ID: c.Info().ID}
	for _, n := range lengths {
		r.Bytes += n
	}
	if r.Bytes > 0 {
		r.Ratio = 4 * float64(len(x)) / float64(r.Bytes)
	}
	bound := make([]float64, len(x))
	for m := range messages {
		lo, hi := m*size, min((m+1)*size, len(x))
		c.Bound(bound[lo:hi], x[lo:hi])
	}
	if err := r.compare(x, y, bound); err != nil {
		return Result{}, err
	}
	r.Encode = rate(len(x), o.repeats(), func() { _ = encode() })
	r.Decode = rate(len(x), o.repeats(), func() { _ = decode() })
	return r, nil
}

// compare fills in what was lost.
func (r *Result) compare(x, y []float32, bound []float64) error {
	var xx, yy, xy, ee, sum float64
	n := 0
	for i := range x {
		a, b := float64(x[i]), float64(y[i])
		if b-b != 0 {
			r.Flagged++
		}
		if a-a != 0 || b-b != 0 {
			continue
		}
		e := b - a
		if abs := math.Abs(e); abs > bound[i] {
			return fmt.Errorf("element %d: %g became %g, an error of %g over the bound of %g", i, a, b, abs, bound[i])
		} else if abs > 0 {
			r.MaxError = max(r.MaxError, abs)
			r.Share = max(r.Share, abs/bound[i])
		}
		n++
		xx += a * a
		yy += b * b
		xy += a * b
		ee += e * e
		sum += e
	}
	if n == 0 {
		return nil
	}
	r.Bias = sum / float64(n)
	if xx > 0 {
		r.NMSE = ee / xx
		r.RelativeBias = r.Bias / math.Sqrt(xx/float64(n))
	}
	r.Cosine = 1
	if ee > 0 {
		r.Cosine = 0
		if xx > 0 && yy > 0 {
			r.Cosine = xy / math.Sqrt(xx*yy)
		}
	}
	return nil
}

// rate is the median over the repeats, in 10^9 bytes of float32 a second. Short
// data is run several times a repeat.
func rate(n, repeats int, f func()) float64 {
	if repeats == 0 || n == 0 {
		return 0
	}
	calls := max(1, 65536/n)
	var v []float64
	for range repeats {
		start := time.Now()
		for range calls {
			f()
		}
		v = append(v, float64(4*n*calls)/float64(max(time.Since(start), 1).Nanoseconds()))
	}
	slices.Sort(v)
	return v[len(v)/2]
}
