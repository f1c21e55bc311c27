// Package accl makes a rank among FPGA cards that run ACCL, or among others like itself: send, recv, bcast, scatter,
// gather, reduce, allgather, reduce_scatter and allreduce over the card's UDP engine, message by message as the card's
// firmware at commit 723d8ec sends them. Package wire/accl is the wire.
//
// # What there is
//
//   - Engine: the state of one rank, without sockets and clocks.
//   - Responder: an Engine that is given frames and gives frames, in lock-step, for tests of other implementations.
//   - UDP: a rank on a UDP socket of the kernel. Package service/accl has one inside the NIC, over AF_XDP. Both are a
//     Rank.
//
// # What is different from a card
//
// The wire has no acknowledgement and no second try. A card whose datagram was lost waits for ever, or adds up what
// does not belong together. Here a call ends with an error that says which peer and which message (PeerError): at once
// when a later message shows that one is missing, otherwise when Config.Timeout is over. The other ranks are not told
// by anybody, since there is no message for it, and run into their own timeout. After such an error the communicator is
// of no use, and must be made anew at every rank, cards included: sequence numbers do not start again otherwise.
//
// What a card's UDP engine accepts and then never ends is refused before anything is sent, with ErrRefused: barrier,
// alltoall, and calls over the eager limit, all of which need a rendezvous that only the RDMA engine serves.
//
// An allreduce of n elements at W ranks is cut into W chunks of ceil(n/W) elements, the last one shorter. When that
// would be less than nothing (5 elements at 4 ranks: 2+2+2 and -1), the firmware computes on with the negative number.
// Here the chunks at the end are cut short at n (2+2+1+0), an empty chunk is no message, and the result is right. Cards
// cannot take part in such a call.
//
// # Arithmetic
//
// Each hop computes own + received in the element's type: float16 is rounded at every hop, integers wrap. With Call.Half
// float32 elements are float16 on the wire and are added in float16 at every hop. All NaN that are computed are the same
// quiet one. Max gives NaN if one operand is; what a card's comparator does with NaN is not known.
package accl
