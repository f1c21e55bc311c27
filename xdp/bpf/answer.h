/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * What the steering program can do with a frame by itself, so that it never goes to a
 * socket: drop it, or send it back with the MAC addresses exchanged; and the account of
 * frames of the kernel's packet generator among those, the same one that a lane keeps
 * (internal/sequence and dataplane/pktgen.go have the rules, and tests hold both to
 * them), with a shorter memory of what came.
 *
 * Everything here is of one CPU: the driver receives a queue on one at a time, and user
 * space adds up.
 */
#ifndef GRADNIC_ANSWER_H
#define GRADNIC_ANSWER_H

/* Kept in step with package xdp. */
#define STREAMS 16	/* senders that are told apart */
#define WINDOW 1024	/* numbers back for which a late packet is told from a duplicate */
#define OCTAVES 34	/* latencies up to 2^34 ns */
#define BUCKETS_AN_OCTAVE 32

#define PKTGEN_MAGIC 0xbe9be955

struct pktgen {
	__u32 magic;
	__u32 number;
	__u32 sec;
	__u32 usec;
};

/* One sender. Numbers count on from 2^32 + the first one. */
struct stream {
	__u64 sender;	/* IPv4 address, and the MAC address's last four bytes; 0: free */
	__u8 mac[6];
	__u16 zero;
	__u64 first, next;
	__u64 unique, duplicates, reordered, ancient;
	__u64 newest;	/* the latest stamp of the run, ns */
	__u64 past_unique, past_lost, past_duplicates, past_reordered; /* of runs that are over */
	__u64 run;
	/*
	 * Of each number by its place in the window: which one came there last, and in which run. So nothing has to be cleared
	 * when numbers are left out or a run begins: a loop that does is what the verifier of Linux 6.1 does not get through.
	 */
	__u32 seen[WINDOW];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STREAMS);
	__type(key, __u32);
	__type(value, struct stream);
} streams SEC(".maps");

struct account {
	__u64 frames;	/* of pktgen */
	__u64 other;
	__u64 untracked;	/* of pktgen, of a sender for which there is no stream */
	__u64 latency[(OCTAVES - 4) * BUCKETS_AN_OCTAVE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* Time of day less bpf_ktime_get_ns, in ns: user space sets it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} day SEC(".maps");

/* bucket_of is linear up to 32 ns, and has 32 buckets to the octave above. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 e = 5;
	__u64 v = ns >> 5;

	if (ns < BUCKETS_AN_OCTAVE)
		return ns;
	if (ns >> OCTAVES)
		return (OCTAVES - 4) * BUCKETS_AN_OCTAVE - 1;
	if (v >> 16) {
		v >>= 16;
		e += 16;
	}
	if (v >> 8) {
		v >>= 8;
		e += 8;
	}
	if (v >> 4) {
		v >>= 4;
		e += 4;
	}
	if (v >> 2) {
		v >>= 2;
		e += 2;
	}
	if (v >> 1)
		e++;
	/* e is the place of the highest bit */
	return (e - 4) * BUCKETS_AN_OCTAVE + ((ns >> (e - 5)) & (BUCKETS_AN_OCTAVE - 1));
}

/* mark_of is what seen says of a number of this run; never 0, and unlike for 2^34 numbers and 256 runs. */
static __always_inline __u32 mark_of(const struct stream *s, __u64 n)
{
	return (__u32)(s->run << 24) | (__u32)(n / WINDOW & 0xffffff);
}

/* numbered takes a packet of this number into the stream's count. */
static __always_inline void numbered(struct stream *s, __u32 number)
{
	__u64 n;
	__u32 mark, *seen;
	int ahead;

	if (s->next == s->first)
		s->first = s->next = (1ULL << 32) + number;
	ahead = number - (__u32)s->next;
	if (ahead >= 0) {
		n = s->next + ahead;
		s->seen[n % WINDOW] = mark_of(s, n);
		s->next = n + 1;
		s->unique++;
		return;
	}
	if (-(long)ahead > WINDOW) {
		s->ancient++;
		return;
	}
	n = s->next + (long)ahead;
	mark = mark_of(s, n);
	seen = &s->seen[n % WINDOW];
	if (*seen == mark) {
		s->duplicates++;
		return;
	}
	*seen = mark;
	if (n < s->first)
		s->first = n;
	s->unique++;
	s->reordered++;
}

/* begun is a run of the sender that has begun: what came before is added up. */
static __always_inline void begun(struct stream *s)
{
	s->past_unique += s->unique;
	s->past_duplicates += s->duplicates;
	s->past_reordered += s->reordered;
	if (s->next - s->first > s->unique)
		s->past_lost += s->next - s->first - s->unique;
	s->first = s->next = s->unique = s->duplicates = s->reordered = s->ancient = 0;
	s->run++;
}

/* observe books a packet of pktgen. */
static __attribute__((noinline)) int observe(struct stream *s, __u32 number, __u64 stamp)
{
	if (!s)
		return 0;
	if (stamp) {
		/* Numbers begin anew with each run of pktgen, and in a run a lower number is never the younger one. */
		if (stamp > s->newest && s->next != s->first && (int)(number - (__u32)s->next) < 0)
			begun(s);
		if (stamp > s->newest)
			s->newest = stamp;
	}
	numbered(s, number);
	return 0;
}

static __attribute__((noinline)) int account_for(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const struct ethernet *eth = data;
	const struct ipv4 *ip = data + sizeof(*eth);
	const struct pktgen *p = (void *)ip + sizeof(*ip) + sizeof(struct udp);
	struct stream *s = 0;
	struct account *a;
	__u32 key = 0, sec, usec;
	__u64 sender, stamp = 0, now, *offset;

	a = bpf_map_lookup_elem(&accounts, &key);
	if (!a)
		return 0;
	if ((void *)(p + 1) > end || eth->type != htons(ETH_IPV4) || ip->version_ihl != 0x45 ||
	    ip->protocol != PROTO_UDP || (ip->fragment & htons(IP_MORE | IP_OFFSET)) || p->magic != htonl(PKTGEN_MAGIC)) {
		a->other++;
		return 0;
	}
	a->frames++;
	sec = htonl(p->sec);
	usec = htonl(p->usec);
	if ((sec | usec) && usec < 1000000) {
		stamp = sec * 1000000000ULL + usec * 1000ULL;
		offset = bpf_map_lookup_elem(&day, &key);
		if (offset) {
			__u32 i;

			now = bpf_ktime_get_ns() + *offset;
			i = bucket_of(now > stamp ? now - stamp : 1);
			if (i < (OCTAVES - 4) * BUCKETS_AN_OCTAVE)
				a->latency[i]++;
		}
	}
	sender = (__u64)htonl(*(const __u32 *)ip->src) << 32 | (__u32)(eth->src[2] << 24 | eth->src[3] << 16 | eth->src[4] << 8 | eth->src[5]);
	/* Unrolled: of a program without CAP_PERFMON the verifier takes this for a loop without end. */
#pragma unroll
	for (int i = 0; i < STREAMS; i++) {
		key = i;
		s = bpf_map_lookup_elem(&streams, &key);
		if (!s)
			return 0;
		if (s->sender == sender)
			break;
		if (!s->sender) {
			s->sender = sender;
			__builtin_memcpy(s->mac, eth->src, sizeof(s->mac));
			break;
		}
		s = 0;
	}
	if (!s) {
		a->untracked++;
		return 0;
	}
	return observe(s, htonl(p->number), stamp);
}

/* turn_back exchanges the MAC addresses; 0: there are none. */
static __always_inline int turn_back(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u16 *m = data;

	if (data + sizeof(struct ethernet) > end)
		return 0;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		__u16 t = m[i];

		m[i] = m[i + 3];
		m[i + 3] = t;
	}
	return 1;
}

#endif
