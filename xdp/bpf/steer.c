//go:build ignore

// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/*
 * The steering program: which frames of a netdev the NIC gets, and which stay the
 * kernel's. The NIC has a MAC and an IPv4 address of its own, which the kernel does
 * not have; a frame is taken only when it is addressed to both. All else is passed
 * on, so attaching never cuts a host off.
 *
 * Header fields are read where they lie by fixed offsets. Options are not parsed:
 * a frame with IPv4 options or a VLAN tag has its ports elsewhere, and is the
 * kernel's. The verdicts are counted one by one; package xdp has the table.
 */
#include "kernel.h"

/* Kept in step with the Verdict constants of package xdp. */
enum verdict {
	TAKEN_UDP,	/* ours, UDP, port served */
	TAKEN_ARP,	/* ARP request for our address */
	TAKEN_ECHO,	/* ICMP echo request to our address */
	TAKEN_ALL,	/* the whole port is ours */
	UNBOUND,	/* to be taken, but no socket on this queue */
	PASS_OTHER,	/* not addressed to us */
	PASS_PORT,	/* ours, UDP, port not served */
	PASS_PROTOCOL,	/* ours, neither UDP nor an echo request */
	PASS_TAGGED,	/* VLAN or QinQ tag */
	PASS_OPTIONS,	/* ours, IPv4 options */
	PASS_FRAGMENT,	/* ours, first or later fragment */
	PASS_SHORT,	/* headers cut off, or not to be trusted */
	PASS_IPV6,
	PASS_ETHERTYPE,	/* neither IPv4, ARP, IPv6 nor a tag */
	OVER_BUDGET,	/* to be taken, but its bucket is empty: dropped */
	SUNK,		/* to be taken, and dropped here as the port's function is */
	REFLECTED,	/* to be taken, and sent back from here as the port's function is */
	SUMMED,		/* a contribution that was added to its slot here */
	REPEATED,	/* a contribution that its slot here has already */
	VERDICTS
};

/* address.flags */
#define WHOLE_PORT 1	/* every frame of the netdev is ours */
#define HAS_ADDRESS 2	/* mac and ip are set */
#define HAS_BUDGETS 4	/* what is taken is charged to a bucket */
#define SINK 8		/* what is taken is dropped here */
#define REFLECT 16	/* what is taken is sent back from here */
#define ACCOUNT 32	/* with SINK and REFLECT: pktgen's frames are accounted for */
#define SUMS 64		/* contributions to jobs that are here are added here */

struct address {
	__u8 mac[6];
	__u16 flags;	/* host order */
	__u8 ip[4];
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address);
} config SEC(".maps");

/* UDP ports that are served: bit (port & 63) of word (port >> 6). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

/* The socket of each receive queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

/*
 * Packet budgets. What is to be taken is charged to the bucket of its source MAC, or
 * to bucket 0 when nobody has said whose MAC it is: by nothing else in the frame, since
 * the MACs that come in by a port are what the switch behind it can vouch for. This
 * program is on one netdev, so the port is part of the key already.
 */
#define BUCKETS 1024
#define SOURCES 65536

struct source {
	__u8 mac[6];
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* changed from user space alone */
	__uint(max_entries, SOURCES);
	__type(key, struct source);
	__type(value, __u32);
} sources SEC(".maps");

/*
 * A bucket of tokens, kept as the time at which it will be full again: a frame costs so
 * many nanoseconds, and is over the budget when the bucket would be full later than
 * depth from now. One word, so that CPUs can share it without a lock.
 */
struct bucket {
	__u64 full;	/* ns of bpf_ktime_get_ns */
	__u64 cost;	/* ns of one frame; 0: no bound */
	__u64 depth;	/* ns of a burst */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct spent {
	__u64 taken;
	__u64 dropped;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct spent);
} spents SEC(".maps");

struct ethernet {
	__u8 dst[6];
	__u8 src[6];
	__u16 type;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__u8 src[4];
	__u8 dst[4];
};

struct udp {
	__u16 src;
	__u16 dst;
	__u16 length;
	__u16 checksum;
};

struct icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 id;
	__u16 sequence;
};

struct arp {
	__u16 hardware;
	__u16 protocol;
	__u8 hardware_len;
	__u8 protocol_len;
	__u16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
};

/*
 * None of these is packed: the fields lie at their natural alignment anyway, and of
 * a packed field clang reads byte by byte, which costs more than all checks together.
 */
_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct ipv4) == 20 &&
	       sizeof(struct udp) == 8 && sizeof(struct icmp) == 8 &&
	       sizeof(struct arp) == 28, "headers as on the wire");

#define ETH_IPV4 0x0800
#define ETH_ARP 0x0806
#define ETH_VLAN 0x8100
#define ETH_IPV6 0x86dd
#define ETH_QINQ 0x88a8
#define ETH_QINQ_OLD 0x9100
#define IP_MORE 0x2000		/* more fragments */
#define IP_OFFSET 0x1fff	/* fragment offset */
#define PROTO_ICMP 1
#define PROTO_UDP 17

/*
 * MAC addresses lie at even addresses and IPv4 addresses at multiples of 4, counted
 * from 2 bytes before the frame (NET_IP_ALIGN), so these loads suit every machine.
 */
static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const void *)a, *y = (const void *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]));
}

static __always_inline int same_ip(const __u8 *a, const __u8 *b)
{
	return *(const __u32 *)a == *(const __u32 *)b;
}

static __always_inline int broadcast(const __u8 *m)
{
	return (m[0] & m[1] & m[2] & m[3] & m[4] & m[5]) == 0xff;
}

static __always_inline int served(__u16 port)
{
	__u32 word = port >> 6;
	__u64 *bits = bpf_map_lookup_elem(&ports, &word);

	return bits && (*bits >> (port & 63)) & 1;
}

static __always_inline enum verdict judge_arp(void *p, void *end,
					      const struct ethernet *eth,
					      const struct address *cfg)
{
	const struct arp *arp = p;

	if (p + sizeof(*arp) > end)
		return PASS_SHORT;
	if (arp->hardware != htons(1) || arp->protocol != htons(ETH_IPV4) ||
	    arp->hardware_len != 6 || arp->protocol_len != 4 ||
	    arp->operation != htons(1) || !same_ip(arp->target_ip, cfg->ip))
		return PASS_OTHER;
	if (!broadcast(eth->dst) && !same_mac(eth->dst, cfg->mac))
		return PASS_OTHER;
	return TAKEN_ARP;
}

static __always_inline enum verdict judge_ipv4(void *p, void *end,
					       const struct ethernet *eth,
					       const struct address *cfg)
{
	const struct ipv4 *ip = p;
	void *l4 = p + sizeof(*ip);

	if (l4 > end)
		return PASS_SHORT;
	if (!same_mac(eth->dst, cfg->mac) || !same_ip(ip->dst, cfg->ip))
		return PASS_OTHER;
	if ((ip->version_ihl >> 4) != 4 || (ip->version_ihl & 15) < 5)
		return PASS_SHORT;
	if ((ip->version_ihl & 15) != 5)
		return PASS_OPTIONS;
	if (ip->fragment & htons(IP_MORE | IP_OFFSET))
		return PASS_FRAGMENT;
	if (ip->protocol == PROTO_UDP) {
		const struct udp *udp = l4;

		if (l4 + sizeof(*udp) > end)
			return PASS_SHORT;
		return served(ntohs(udp->dst)) ? TAKEN_UDP : PASS_PORT;
	}
	if (ip->protocol == PROTO_ICMP) {
		const struct icmp *icmp = l4;

		if (l4 + sizeof(*icmp) > end)
			return PASS_SHORT;
		return icmp->type == 8 && icmp->code == 0 ? TAKEN_ECHO : PASS_PROTOCOL;
	}
	return PASS_PROTOCOL;
}

static __always_inline enum verdict judge_addressed(struct xdp_md *ctx,
						    const struct address *cfg)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ethernet *eth = data;
	void *l3 = data + sizeof(*eth);

	if (!(cfg->flags & HAS_ADDRESS))
		return PASS_OTHER;
	if (l3 > end)
		return PASS_SHORT;
	switch (eth->type) {
	case htons(ETH_IPV4):
		return judge_ipv4(l3, end, eth, cfg);
	case htons(ETH_ARP):
		return judge_arp(l3, end, eth, cfg);
	case htons(ETH_IPV6):
		return PASS_IPV6;
	case htons(ETH_VLAN):
	case htons(ETH_QINQ):
	case htons(ETH_QINQ_OLD):
		return PASS_TAGGED;
	}
	return PASS_ETHERTYPE;
}

static __always_inline enum verdict judge(struct xdp_md *ctx,
					  const struct address *cfg)
{
	if (cfg->flags & WHOLE_PORT)
		return TAKEN_ALL;
	return judge_addressed(ctx, cfg);
}

#include "answer.h"
#include "sum.h"

/* The programs: most frames need the first one alone, and the others are longer. */
enum program {
	STEERS,
	ANSWERS,	/* by itself: answer.h */
	SUMS_UP,	/* what workers contribute: sum.h */
};

/* within charges one frame to a bucket; 0: there is nothing left to charge it to. */
static __always_inline int within(struct bucket *b)
{
	__u64 now, full, from;

	if (!b->cost)
		return 1;
	now = bpf_ktime_get_ns();
#pragma unroll
	for (int i = 0; i < 4; i++) {
		full = *(volatile __u64 *)&b->full;
		from = full > now ? full : now;
		if (from - now + b->cost > b->depth)
			return 0;
		if (__sync_val_compare_and_swap(&b->full, full, from + b->cost) == full)
			return 1;
	}
	/* Other CPUs were quicker each time. It is charged all the same: the bucket is over by a frame a CPU at most. */
	__sync_fetch_and_add(&b->full, b->cost);
	return 1;
}

/*
 * spend finds the bucket of a frame and charges it. Not inlined: without budgets the way
 * of a frame stays as short as it was.
 */
static __attribute__((noinline)) int spend(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ethernet *eth = data;
	struct source key = {};
	__u32 index = 0, *known;
	struct bucket *b;
	struct spent *s;
	int ok;

	if (data + sizeof(*eth) > end)
		return 1;
	__builtin_memcpy(key.mac, eth->src, sizeof(key.mac));
	known = bpf_map_lookup_elem(&sources, &key);
	if (known)
		index = *known;
	b = bpf_map_lookup_elem(&buckets, &index);
	s = bpf_map_lookup_elem(&spents, &index);
	if (!b || !s)
		return 1;
	ok = within(b);
	if (ok)
		s->taken++;
	else
		s->dropped++;
	return ok;
}

/* contributes tells whether a frame that is to be taken may be a worker's: UDP to our address. */
static __always_inline int contributes(struct xdp_md *ctx, const struct address *cfg, __u32 v)
{
	if (v == TAKEN_ALL)
		v = judge_addressed(ctx, cfg);
	return v == TAKEN_UDP || v == PASS_PORT; /* with the whole port no port is served by number */
}

/*
 * program is what this one can do. Most never answer and never sum up, and are the ones
 * without: the account alone is forty times as long as all the rest, takes the verifier
 * half a second, and cannot be loaded at all without CAP_PERFMON (seen with Linux 6.18).
 */
static __always_inline int steer_frame(struct xdp_md *ctx, enum program program)
{
	__u32 zero = 0, v;
	__u64 *count;
	int action = XDP_PASS;
	const struct address *cfg = bpf_map_lookup_elem(&config, &zero);

	if (!cfg)
		return XDP_PASS;
	v = judge(ctx, cfg);
	if (program == ANSWERS && v <= TAKEN_ALL && (cfg->flags & (SINK | REFLECT))) {
		if (cfg->flags & ACCOUNT)
			account_for(ctx);
		v = SUNK;
		action = XDP_DROP;
		if ((cfg->flags & REFLECT) && turn_back(ctx)) {
			v = REFLECTED;
			action = XDP_TX;
		}
	} else if (v <= TAKEN_ALL) {
		/* Without a socket on this queue the frame is the kernel's. */
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT) {
			v = UNBOUND;
		} else if ((cfg->flags & HAS_BUDGETS) && !spend(ctx)) {
			v = OVER_BUDGET;
			action = XDP_DROP;
		} else if (program == SUMS_UP && (cfg->flags & SUMS) && contributes(ctx, cfg, v)) {
			int s = sum(ctx);

			if (s == ADDED || s == SEEN) {
				v = s == ADDED ? SUMMED : REPEATED;
				action = XDP_DROP;
			}
		}
	}
	count = bpf_map_lookup_elem(&verdicts, &v);
	if (count)
		(*count)++;
	return action;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return steer_frame(ctx, STEERS);
}

/* The same for frames in several buffers; all headers are in the first. */
SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	return steer_frame(ctx, STEERS);
}

/* The same two with answers: user space puts them in the place of the others. */
SEC("xdp")
int steer_answer(struct xdp_md *ctx)
{
	return steer_frame(ctx, ANSWERS);
}

SEC("xdp.frags")
int steer_answer_frags(struct xdp_md *ctx)
{
	return steer_frame(ctx, ANSWERS);
}

/* And with sums. */
SEC("xdp")
int steer_sum(struct xdp_md *ctx)
{
	return steer_frame(ctx, SUMS_UP);
}

SEC("xdp.frags")
int steer_sum_frags(struct xdp_md *ctx)
{
	return steer_frame(ctx, SUMS_UP);
}

char __license[] SEC("license") = "Dual BSD/GPL";
