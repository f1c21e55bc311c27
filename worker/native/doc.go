// Package native is a worker of gradnic's own protocol: collectives over arrays of every element type, summed in the network.
//
//	w, err := native.Join(ctx, native.Config{Rank: 0, NIC: nic, IP: own})
//	stats, err := native.AllReduce(ctx, w, sum, gradients)
//
// What the job is (type, operation, slots, codecs) the worker learns from the NIC when it joins. All workers of a job make the
// same calls in the same order. Calls are cut into chunks, one a packet; docs/protocol.md says how chunks use slots and
// rounds, and what happens when packets are lost or the NIC loses its memory: a worker keeps each contribution as it was encoded until
// its result is there, and each result until the next one on the slot is, so that it can give it to those who lack it.
//
// Packets in flight are governed by loss and delay (pace), resends by what overtook a packet (flight) and, where nothing did, by the
// round trips measured (timer), how often the socket is looked at by the rate at which results come (nap).
//
// Over a job with codecs a contribution is compressed once, when it is sent first, and results are decompressed as they come. A codec
// that leaves something out, such as top-k, wants error feedback: [Worker.NewFeedback] makes the memory for one array, and
// [AllReduceFeedback] adds what was left out before. [THC] compresses so that the network adds without decoding, over two jobs.
//
// The state of a worker is in engine, under one lock, and window is its part without clock or socket.
package native
