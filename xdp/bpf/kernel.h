/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/*
 * The little of the kernel's BPF interface that steer.c uses. Having it here makes
 * the build ask for clang alone: no kernel headers, no libbpf.
 */
#ifndef GRADNIC_KERNEL_H
#define GRADNIC_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct bpf_spin_lock {
	__u32 val;
};

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_XSKMAP 17
#define BPF_F_NO_PREALLOC 1

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)160;
static void (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static void (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define __always_inline inline __attribute__((always_inline))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define htons(x) ((__u16)__builtin_bswap16(x))
#define htonl(x) ((__u32)__builtin_bswap32(x))
#define ntohll(x) ((__u64)__builtin_bswap64(x))
#else
#define htons(x) ((__u16)(x))
#define htonl(x) ((__u32)(x))
#define ntohll(x) ((__u64)(x))
#endif
#define ntohs(x) htons(x)

#endif
