//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Programs of the bench: an in-kernel generator that is run with live frames (BPF_F_TEST_XDP_LIVE_FRAMES) and
// leaves by XDP_TX, and the two ceilings of the receiving side, drop and return, which count what they see.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_HLEN 14
#define SWITCHML_END 52 /* Ethernet 14, IPv4 20, UDP 8, SwitchML 10 */

/* Written once before the run. */
volatile const __u32 workers = 0;  /* 0: plain frames; else SwitchML contributions of this many workers */
volatile const __u32 slots = 1;    /* slots of the pool, each used in set 0 and set 1 in turn */
volatile const __u32 stamp_at = 0; /* 0: none; else the offset of a 64-bit sequence number and a 64-bit time */
volatile const __u32 flows = 1;    /* plain frames: the UDP source port runs through this many values */

/* One thread runs the generator, so plain globals are enough. */
__u64 sequence = 0; /* frames made */
__u64 first = 0;    /* when the first one was, monotonic ns; 0: none yet */
__u64 last = 0;     /* and the last, read every 64 frames */

static __always_inline void put_worker(__u8 *p, __u32 worker)
{
	p[10] = worker + 1;                /* source MAC 02:00:00:00:(w+1):00 */
	p[29] = worker + 1;                /* source IP x.x.x.(w+1) */
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u8 *p = (void *)(long)ctx->data;
	__u8 *end = (void *)(long)ctx->data_end;
	__u64 n = sequence++;

	if (n % 64 == 0) {
		last = bpf_ktime_get_ns();
		if (!first)
			first = last;
	}
	if (p + SWITCHML_END > end)
		return XDP_DROP;

	if (workers) {
		__u64 k = n / workers;
		__u32 slot = k % slots;
		__u32 set = (k / slots) & 1;

		put_worker(p, n % workers);
		p[44] = k; /* the client's packet number, opaque to the NIC */
		p[45] = k >> 8;
		p[46] = k >> 16;
		p[47] = k >> 24;
		p[48] = set << 7 | slot >> 8;
		p[49] = slot;
	} else {
		__u16 port = 4000 + n % flows;

		p[34] = port >> 8;
		p[35] = port;
	}
	if (stamp_at && stamp_at < 9000) {
		__u8 *s = p + stamp_at;

		if (s + 16 > end)
			return XDP_DROP;
		*(__u64 *)s = n;
		*(__u64 *)(s + 8) = bpf_ktime_get_ns();
	}
	return XDP_TX;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static __always_inline void count(void)
{
	__u32 key = 0;
	__u64 *n = bpf_map_lookup_elem(&seen, &key);

	if (n)
		(*n)++;
}

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	count();
	return XDP_DROP;
}

SEC("xdp")
int bounce(struct xdp_md *ctx)
{
	count();
	return XDP_TX;
}

/* The generator's end of the link needs a program, so that frames redirected to it are delivered; this one counts. */
SEC("xdp")
int receive(struct xdp_md *ctx)
{
	count();
	return XDP_DROP;
}

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* The least that brings a frame to a socket: what the C yardstick runs behind. */
SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_DROP);
}
