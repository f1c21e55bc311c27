//go:build cgo

package main

/*
#include "gradnic.h"

void gradnic_track(int fd);
void gradnic_untrack(int fd);
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"gradnic/host"
)

// Pointers here are the C caller's, who promises what gradnic.h says of them: structures are there for the length of the
// call, data and weights until the operation is over. None is from Go, and none is kept but those two, inside an Op.

// errInvalid marks what cannot be done whatever the NIC says.
var errInvalid = errors.New("invalid argument")

// fail writes the text of an error to a C buffer and gives its number.
func fail(err error, text *C.char, room C.size_t) C.int {
	if err == nil {
		return C.GRADNIC_OK
	}
	if text != nil && room > 0 {
		b := unsafe.Slice((*byte)(unsafe.Pointer(text)), room)
		b[copy(b[:len(b)-1], err.Error())] = 0
	}
	var re *host.RequestError
	switch {
	case errors.Is(err, errInvalid):
		return C.GRADNIC_EINVAL
	case errors.Is(err, host.ErrGone):
		return C.GRADNIC_EGONE
	case errors.Is(err, host.ErrClosed), errors.Is(err, errNoHandle):
		return C.GRADNIC_ECLOSED
	case errors.Is(err, host.ErrNoRoom):
		return C.GRADNIC_ENOMEM
	case errors.As(err, &re):
		return C.GRADNIC_EREQUEST
	}
	return C.GRADNIC_EOTHER
}

// openNIC is the client of a handle that is not closed.
func openNIC(handle C.gradnic_nic) (*nic, error) {
	n, err := nics.get(uint64(handle))
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errNoHandle
	}
	return n, nil
}

var version = sync.OnceValue(func() *C.char {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v == "(devel)" {
				v = s.Value
			}
		}
	}
	return C.CString(v)
})

//export gradnicGoVersion
func gradnicGoVersion() *C.char { return version() }

//export gradnicGoOpen
func gradnicGoOpen(path *C.char, o *C.gradnic_options, handle *C.gradnic_nic, text *C.char, room C.size_t) C.int {
	if path == nil || handle == nil {
		return fail(fmt.Errorf("gradnic: %w: path and nic must not be NULL", errInvalid), text, room)
	}
	var opt host.Options
	timeout := 10 * time.Second
	if o != nil {
		opt.Arena, opt.Piece = int64(o.arena), int(o.piece)
		if o.timeout_ms > 0 {
			timeout = time.Duration(o.timeout_ms) * time.Millisecond
		}
		if o.arena < 0 || o.piece < 0 || o.timeout_ms < 0 {
			return fail(fmt.Errorf("gradnic: %w: an option is below 0", errInvalid), text, room)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := host.Dial(ctx, C.GoString(path), opt)
	if err != nil {
		return fail(err, text, room)
	}
	if fd, ok := c.Descriptor(); ok {
		C.gradnic_track(C.int(fd))
	}
	*handle = C.gradnic_nic(nics.add(&nic{Client: c}))
	return C.GRADNIC_OK
}

//export gradnicGoClose
func gradnicGoClose(handle C.gradnic_nic, wait C.int, text *C.char, room C.size_t) C.int {
	n, err := nics.get(uint64(handle))
	if err != nil {
		return C.GRADNIC_OK // closed, and its memory is back
	}
	if wait != 0 {
		n.Flush()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return C.GRADNIC_OK
	}
	if fd, ok := n.Descriptor(); ok {
		C.gradnic_untrack(C.int(fd))
	}
	n.closed = true
	err = n.Abort()
	n.settle(uint64(handle))
	return fail(err, text, room)
}

//export gradnicGoAlloc
func gradnicGoAlloc(handle C.gradnic_nic, count C.uint64_t, p **C.float, text *C.char, room C.size_t) C.int {
	n, err := openNIC(handle)
	switch {
	case err != nil:
	case p == nil || count == 0 || count > 1<<60:
		err = fmt.Errorf("gradnic: %w: %d elements", errInvalid, uint64(count))
	default:
		var f []float32
		if f, err = n.Alloc(int(count)); err == nil {
			*p = (*C.float)(unsafe.Pointer(unsafe.SliceData(f)))
		}
	}
	return fail(err, text, room)
}

//export gradnicGoFree
func gradnicGoFree(handle C.gradnic_nic, p *C.float, text *C.char, room C.size_t) C.int {
	if p == nil {
		return C.GRADNIC_OK
	}
	n, err := nics.get(uint64(handle))
	if err != nil {
		return fail(err, text, room)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Free(floats(p, 1)); err != nil {
		return fail(fmt.Errorf("%w: %w", errInvalid, err), text, room)
	}
	n.settle(uint64(handle))
	return C.GRADNIC_OK
}

// floats is a C array as a slice; the caller has checked its length.
func floats(p *C.float, n uint64) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), n)
}

//export gradnicGoStart
func gradnicGoStart(handle C.gradnic_nic, r *C.gradnic_request, op *C.gradnic_op, text *C.char, room C.size_t) C.int {
	n, err := openNIC(handle)
	if err != nil {
		return fail(err, text, room)
	}
	if r == nil || op == nil {
		return fail(fmt.Errorf("gradnic: %w: r and op must not be NULL", errInvalid), text, room)
	}
	data, weights, count := uintptr(unsafe.Pointer(r.data)), uintptr(unsafe.Pointer(r.weights)), uintptr(r.count)
	reason := ""
	switch {
	case r.count > 0 && r.data == nil:
		reason = fmt.Sprintf("%d elements, and data is NULL", count)
	case r.count > 1<<60:
		reason = fmt.Sprintf("%d elements are too many", count)
	case r.deadline_ms < 0 || r.deadline_ms > 1<<40:
		reason = fmt.Sprintf("a deadline of %d ms: from 0 to %d", int64(r.deadline_ms), int64(1)<<40)
	case data%4 != 0 || weights%4 != 0:
		reason = "data and weights must be at a multiple of 4 bytes"
	case weights != 0 && data < weights+4*count && weights < data+4*count:
		reason = "data and weights overlap"
	}
	if reason != "" {
		return fail(fmt.Errorf("gradnic: %w: %s", errInvalid, reason), text, room)
	}
	q := host.Request{LearningRate: float32(r.learning_rate), Deadline: time.Duration(r.deadline_ms) * time.Millisecond}
	if r.count > 0 {
		q.Data = floats(r.data, uint64(r.count))
		if r.weights != nil {
			q.Weights = floats(r.weights, uint64(r.count))
		}
	}
	if r.codec != nil {
		q.Codec = C.GoString(r.codec)
	}
	o, err := n.Start(q)
	if err == nil {
		*op = C.gradnic_op(ops.add(o))
	}
	return fail(err, text, room)
}

//export gradnicGoWait
func gradnicGoWait(op C.gradnic_op, timeout C.int64_t, stats *C.gradnic_stats, text *C.char, room C.size_t) C.int {
	o, err := ops.get(uint64(op))
	if err != nil {
		return fail(err, text, room)
	}
	ctx := context.Background()
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(timeout, 1<<40))*time.Millisecond)
		defer cancel()
	}
	s, err := o.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return C.GRADNIC_TIMEOUT
	}
	ops.remove(uint64(op))
	if stats != nil {
		stats.elapsed_ns, stats.waited_ns = C.uint64_t(s.Elapsed), C.uint64_t(s.Waited)
		stats.blocks, stats.non_finite = C.uint64_t(s.Blocks), C.uint64_t(s.NonFinite)
	}
	return fail(err, text, room)
}

// putText writes a string to an array of chars, cut to fit, with a zero at the end.
func putText(to []C.char, s string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), len(to))
	b[copy(b[:len(b)-1], s)] = 0
}

//export gradnicGoStatus
func gradnicGoStatus(handle C.gradnic_nic, out *C.gradnic_status_t, text *C.char, room C.size_t) C.int {
	n, err := openNIC(handle)
	if err == nil && out == nil {
		err = fmt.Errorf("gradnic: %w: status must not be NULL", errInvalid)
	}
	if err != nil {
		return fail(err, text, room)
	}
	s, err := n.Status()
	if err != nil {
		return fail(err, text, room)
	}
	*out = C.gradnic_status_t{node: C.uint32_t(s.Node), generation: C.uint32_t(s.Generation), outstanding: C.uint32_t(s.Outstanding)}
	for _, v := range s.Nodes[:min(len(s.Nodes), len(out.nodes))] {
		out.nodes[out.count] = C.uint16_t(v)
		out.count++
	}
	putText(out.phase[:], s.Phase)
	putText(out.failure[:], s.Failure)
	return C.GRADNIC_OK
}

//export gradnicGoReform
func gradnicGoReform(handle C.gradnic_nic, nodes *C.uint16_t, count C.size_t, text *C.char, room C.size_t) C.int {
	n, err := openNIC(handle)
	if err == nil && (nodes == nil || count < 1 || count > C.GRADNIC_MAX_NODES) {
		err = fmt.Errorf("gradnic: %w: %d nodes", errInvalid, count)
	}
	if err != nil {
		return fail(err, text, room)
	}
	list := make([]uint16, count)
	for i, v := range unsafe.Slice(nodes, count) {
		list[i] = uint16(v)
	}
	_, err = n.Reform(list)
	return fail(err, text, room)
}
