//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Programs of the bench: an in-kernel generator that is run with live frames (BPF_F_TEST_XDP_LIVE_FRAMES) and
// leaves by XDP_TX, at a rate and with impairments where that is asked, and the two ceilings of the receiving side,
// drop and return, which count what they see.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_HLEN 14
#define TC_ACT_SHOT 2
#define SWITCHML_END 52 /* Ethernet 14, IPv4 20, UDP 8, SwitchML 10 */

/* Written once before the run. */
volatile const __u32 workers = 0;  /* 0: plain frames; else SwitchML contributions of this many workers */
volatile const __u32 slots = 1;    /* slots of the pool, each used in set 0 and set 1 in turn */
volatile const __s32 worker_bits = -1; /* workers and slots as powers of 2, else -1: a division takes as long as all the rest */
volatile const __s32 slot_bits = -1;
volatile const __u32 jobs = 1;     /* jobs in turn, whose workers have addresses of their own */
volatile const __u32 flows = 1;    /* plain frames: the UDP source port runs through this many values */
volatile const __u32 stamp_at = 0; /* 0: none; else where bench/flow's stamp is */
volatile const __u32 stamp_sum = 0; /* the payload's part of the stamp's check word */
volatile const __u32 macs[3] = {}; /* the frame's MAC addresses as they lie */
volatile const __u64 gap = 0;      /* ns from frame to frame in 1/65536; 0: as fast as it goes */
/* Shares of 2^32: numbers left out, frames sent twice, sent behind the next one, damaged ones sent in addition. */
volatile const __u32 lose = 0;
volatile const __u32 twice = 0;
volatile const __u32 swap = 0;
volatile const __u32 damage = 0;

/* One thread runs the generator, so plain globals are enough. */
__u64 sequence = 0; /* the next number */
__u64 sent = 0;     /* frames made */
__u64 most = 0;     /* sent at the end of the run; 0: no limit */
__u64 origin = 0;   /* sent at its start */
__u64 first = 0;    /* when the first one was, monotonic ns; 0: none yet */
__u64 last = 0;     /* and the last; without gap read every 64 frames */
__u64 dice = 1;     /* the generator's random state, never 0 */
__u64 back[2] = {}; /* numbers to be sent before any new one */
__u32 backs = 0;
__u64 skipped = 0, doubled = 0, swapped = 0, damaged = 0;

static __always_inline __u32 roll(void)
{
	__u64 x = dice;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	dice = x;
	return x * 0x2545f4914f6cdd1dULL >> 32;
}

static __always_inline void push_back(__u64 n)
{
	__u32 k = backs;

	if (k < 2) {
		back[k & 1] = n;
		backs = k + 1;
	}
}

/* The number of the next frame. */
static __always_inline __u64 number(void)
{
	__u64 n;
	__u32 k = backs;

	if (k) {
		backs = k - 1;
		return back[(k - 1) & 1];
	}
	for (int i = 0; i < 64 && lose && roll() < lose; i++) {
		sequence++;
		skipped++;
	}
	n = sequence++;
	if (swap && roll() < swap) {
		push_back(n);
		n = sequence++;
		swapped++;
	}
	if (twice && roll() < twice) {
		push_back(n);
		doubled++;
	}
	return n;
}

static __always_inline void put_worker(__u8 *p, __u32 worker)
{
	p[10] = worker + 1;                /* source MAC 02:00:00:00:(w+1):00 */
	p[29] = worker + 1;                /* source IP x.x.x.(w+1) */
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LE32(x) (x)
#define LE64(x) (x)
#else
#define LE32(x) __builtin_bswap32(x)
#define LE64(x) __builtin_bswap64(x)
#endif

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u8 *p = (void *)(long)ctx->data;
	__u8 *end = (void *)(long)ctx->data_end;
	__u64 now = 0, n;

	if (most && sent >= most)
		return XDP_DROP;
	if (gap) {
		now = bpf_ktime_get_ns();
		if (!first)
			first = now;
		/* Not due: the attempt is dropped, and costs some tens of nanoseconds. */
		if (now < first + ((sent - origin) * gap >> 16))
			return XDP_DROP;
		last = now;
	} else if (sent % 64 == 0) {
		last = bpf_ktime_get_ns();
		if (!first)
			first = last;
	}
	if (p + SWITCHML_END > end)
		return XDP_DROP;
	sent++;
	/* The frame's memory comes back as it was left: damaged, or turned back by whoever had it. */
	((__u32 *)p)[0] = macs[0];
	((__u32 *)p)[1] = macs[1];
	((__u32 *)p)[2] = macs[2];
	p[14] = 0x45;
	if (damage && roll() < damage) {
		p[14] = 0x65; /* IP version 6 behind IPv4's EtherType */
		damaged++;
		return XDP_TX;
	}
	n = number();

	if (workers) {
		__u64 k = worker_bits >= 0 ? n >> worker_bits : n / workers;
		__u32 job = 0, slot;
		__u32 set;

		if (jobs > 1) {
			job = k % jobs;
			k /= jobs;
			p[8] = job >> 8; /* source MAC 02:00:jj:jj:(w+1):00, source IP x.x+j.j.(w+1) */
			p[9] = job;
			p[27] = 50 + (job >> 8);
			p[28] = job;
		}
		if (slot_bits >= 0) {
			slot = k & (slots - 1);
			set = (k >> slot_bits) & 1;
		} else {
			slot = k % slots;
			set = (k / slots) & 1;
		}
		put_worker(p, worker_bits >= 0 ? n & (workers - 1) : n % workers);
		p[44] = k; /* the client's packet number, opaque to the NIC */
		p[45] = k >> 8;
		p[46] = k >> 16;
		p[47] = k >> 24;
		p[48] = set << 7 | slot >> 8;
		p[49] = slot;
	} else if (flows > 1) {
		__u16 port = 4000 + n % flows;

		p[34] = port >> 8;
		p[35] = port;
	}
	if (stamp_at && stamp_at < 9000) {
		__u8 *s = p + stamp_at;
		__u64 when = (now ? now : bpf_ktime_get_ns()) & 0xffffffffffffffULL;

		if (s + 16 > end)
			return XDP_DROP;
		/* The offset is a multiple of 2: BPF on x86 and arm64 stores unaligned words. */
		*(__u32 *)s = LE32(stamp_sum ^ (__u32)n ^ (__u32)when ^ (__u32)(when >> 32));
		*(__u32 *)(s + 4) = LE32((__u32)n);
		*(__u64 *)(s + 8) = LE64(when);
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

/* A device that is worse than it could be, for tests of the bench: slow by so many ns a frame (some 20,000 at most), and damaging one frame in
 * so many. */
volatile const __u64 dawdle = 0;
volatile const __u32 spoil = 0;
__u64 bounced = 0;

SEC("xdp")
int bounce(struct xdp_md *ctx)
{
	__u8 *p = (void *)(long)ctx->data;
	__u8 *end = (void *)(long)ctx->data_end;

	count();
	if (dawdle) {
		__u64 until = bpf_ktime_get_ns() + dawdle;

		for (int i = 0; i < 1000 && bpf_ktime_get_ns() < until; i++)
			;
	}
	if (spoil && ++bounced % spoil == 0 && p + 60 <= end)
		p[59] ^= 1;
	return XDP_TX;
}

/* The generator's end of the link needs a program, so that frames redirected to it are delivered; this one counts. With
 * only_port it counts frames from that UDP port alone, and to it, as a socket answers: those of one run. */
volatile const __u32 only_port = 0;

static __always_inline int wanted(const __u8 *ports)
{
	return (__u32)(ports[0] << 8 | ports[1]) == only_port || (__u32)(ports[2] << 8 | ports[3]) == only_port;
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	__u8 *p = (void *)(long)ctx->data;
	__u8 *end = (void *)(long)ctx->data_end;

	if (only_port && (p + 38 > end || !wanted(p + 34)))
		return XDP_DROP;
	count();
	return XDP_DROP;
}

/* The same at the netdev's ingress, for frames that come back as sk_buffs: of those the driver would make a copy that an
 * XDP program may write to, at the cost of whoever sent them. */
SEC("tcx/ingress")
int receive_skb(struct __sk_buff *skb)
{
	__u8 ports[4];

	if (only_port && (bpf_skb_load_bytes(skb, 34, ports, sizeof(ports)) || !wanted(ports)))
		return TC_ACT_SHOT;
	count();
	return TC_ACT_SHOT;
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
