package kernel

// The assembly's loops take pointers and a count of elements, so that their callers check lengths once. They do not
// keep the pointers.
type (
	setLoop[A Element]     = func(acc *A, src *byte, n int, p *params) (flagged int)
	foldLoop[A Element]    = func(acc *A, src *byte, n int, p *params) (flagged int)
	putLoop[A Element]     = func(dst *byte, acc *A, n int, p *params) (flagged int)
	foldPutLoop[A Element] = func(dst *byte, acc *A, src *byte, n int, p *params) (flagged int)
)

// loops is the assembly of one type at one level. The zero value means that there is none.
type loops[A Element] struct {
	step    int // n must be a multiple of it, a power of two
	set     setLoop[A]
	put     putLoop[A]
	fold    [ops]foldLoop[A]
	foldPut [ops]foldPutLoop[A]
	addPeak func(acc *A, src *byte, n int, p *params) (flagged int, peak uint32)

	divideStep int
	divide     func(acc *A, n, by int)
}
