// Package worker is the host's side of an all-reduce in the network: it cuts an
// array into packets, sends them to the NIC (or a switch) that sums them over all
// workers, takes the sums and resends what was lost.
//
// It speaks SwitchML over UDP and can take the place of the public client, in one
// job with it, where it does the same: slots, sets, packet numbers, the extra
// batch of exponents and the scale are that client's. It differs in what that
// client gets wrong: every resend carries its own packet's number and slot,
// a result counts once, and a received frame is checked before it is believed.
//
// # Shape
//
// [Join] makes the session with the controller and returns a [Worker];
// [Worker.AllReduceInt32] and [Worker.AllReduceFloat32] run one job each.
//
//	thread   runs one slice of a job: it owns the buffers and a transport
//	window   which packet goes when, pure: no clock and no socket inside
//	payload  what packet k carries: int32, or float32 with exponents
//	transport  frames out and in: a UDP socket, or a FrameLink
//
// # Slots
//
// With T threads and M packets outstanding a thread, thread t uses slots 2Mt to
// 2Mt+M-1 in both sets. Packet k of a job has i = (k + shift) mod 2M: slot
// 2Mt + (i mod M), set i / M. shift grows by the job's packets, so that over all
// jobs each slot is used alternately in its two sets.
//
// A packet is sent when the packet before it on its slot (k-M) has its result.
// That is what makes the two sets safe: a packet on one set tells the switch that
// this worker holds the result of the other, so its bit there is cleared; and
// when all workers are past, the cell can be used again. The public client skips
// this rule in float32 jobs of less than M blocks, where packet k+M can leave
// before the result of k is in; a resend of k is then summed twice.
//
// # Resends, and why the order of one worker's frames matters
//
// SwitchML has no round number on the wire. A frame that arrives after its worker
// went on to the other set of the slot is a new contribution to the switch, and
// is wrong for ever. So the path from each worker to the switch must keep the
// order of frames (one queue, one link), and a worker must never resend a packet
// whose result it has. With both rules a resend is safe wherever it is when the
// result arrives:
//
//   - it reaches the switch before the slot is complete: a duplicate, ignored;
//   - it reaches the switch after the slot is complete, and before this worker's
//     next packet on the slot, which comes behind it in order: the switch sends the
//     result once more, to this worker alone; the worker has it and ignores it;
//   - it cannot reach the switch after this worker's next packet on the slot.
//
// A packet is sent again when the results of packets sent well after it have come,
// or when its timer runs out, which follows the measured round trips and doubles
// while nothing comes in (RFC 6298, one sample a round).
//
// A network that reorders one worker's frames breaks SwitchML, for every client.
//
// # Float32
//
// A block of floats is scaled to int32 by its largest exponent over all workers,
// which an extra first batch finds out (package codec has the arithmetic: nearest
// even, error bound, and why the sum cannot wrap). Blocks that cannot be scaled,
// with a NaN, an infinity or a magnitude of 2^126 or more, follow [NonFinite].
// Either way no worker is left waiting and none gets a finite wrong number
// without being told.
package worker
