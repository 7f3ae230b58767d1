/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What all programs share: whose packet it is. Only contexts of the kernel's UAPI, so nothing is relocated on a node. */
#ifndef J10CE_PACKET_H
#define J10CE_PACKET_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAJOR 0x10CEu /* the handle of our qdiscs: qos.network.wanted.MAJOR */
#define MOST_ADDRESSES 4096
#define MOST_CGROUPS 1024
#define MOST_INTERFACES 4096
#define MOST_LEVELS 16

#define PROTOCOL_IPV4 0x0800
#define PROTOCOL_IPV6 0x86DD
#define PROTOCOL_VLAN 0x8100
#define PROTOCOL_SERVICE_VLAN 0x88A8
#define MOST_TAGS 2

enum side { SOURCE, DESTINATION };

struct address {
	__u32 word[4]; /* as on the wire; IPv4 as ::ffff:a.b.c.d */
};

struct settings {
	__u32 levels; /* bit n: cgroups n below the root may be in by_cgroup; 0: none is */
	__u32 marks;  /* not 0: mark is hung in somewhere, so tc_index is ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_ADDRESSES);
	__type(key, struct address);
	__type(value, __u32); /* class id, major:minor */
} by_address SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_INTERFACES);
	__type(key, __u32); /* index of the host's end of a pod's veth */
	__type(value, __u32);
} by_interface SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_CGROUPS);
	__type(key, __u64); /* cgroup id: the inode of its folder, on cgroup v2 */
	__type(value, __u32);
} by_cgroup SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The network header's protocol, below tags that no NIC takes off; *offset: where it begins. 0: cannot be read. */
static __always_inline __be16 network_protocol(struct __sk_buff *skb, __u32 *offset)
{
	__be16 protocol = skb->protocol;
#pragma unroll
	for (int tag = 0; tag < MOST_TAGS; tag++) {
		__be16 below[2]; /* the tag, and what follows it */
		if (protocol != bpf_htons(PROTOCOL_VLAN) && protocol != bpf_htons(PROTOCOL_SERVICE_VLAN))
			break;
		if (bpf_skb_load_bytes_relative(skb, *offset, below, sizeof(below), BPF_HDR_START_NET))
			return 0;
		protocol = below[1];
		*offset += sizeof(below);
	}
	return protocol;
}

/* Extension headers come after the addresses, so they need no look. 0: the packet has no such address. */
static __always_inline int read_address(struct __sk_buff *skb, enum side side, struct address *found)
{
	__u32 offset = 0;
	__be16 protocol = network_protocol(skb, &offset);
	if (protocol == bpf_htons(PROTOCOL_IPV4)) {
		found->word[0] = found->word[1] = 0;
		found->word[2] = bpf_htonl(0xffff);
		offset += side == SOURCE ? 12 : 16;
		return !bpf_skb_load_bytes_relative(skb, offset, &found->word[3], 4, BPF_HDR_START_NET);
	}
	if (protocol == bpf_htons(PROTOCOL_IPV6)) {
		offset += side == SOURCE ? 8 : 24;
		if (bpf_skb_load_bytes_relative(skb, offset, found, sizeof(*found), BPF_HDR_START_NET))
			return 0;
		/* No such packet may be on a wire (RFC 4291): it would pass as an IPv4 pod's. */
		return found->word[0] || found->word[1] || found->word[2] != bpf_htonl(0xffff);
	}
	return 0;
}

static __always_inline __u32 class_by_address(struct __sk_buff *skb, enum side side)
{
	struct address key;
	__u32 *class;
	if (!read_address(skb, side, &key))
		return 0;
	class = bpf_map_lookup_elem(&by_address, &key);
	return class ? *class : 0;
}

/* At the host's end of a pod's veth: what the pod writes as its source address does not count. 0: it is no pod's, or
 * is no IP: nobody is to lose his neighbours by his own limit. */
static __always_inline __u32 class_by_interface(struct __sk_buff *skb)
{
	__u32 offset = 0, index = skb->ifindex, *class;
	__be16 protocol = network_protocol(skb, &offset);
	if (protocol != bpf_htons(PROTOCOL_IPV4) && protocol != bpf_htons(PROTOCOL_IPV6))
		return 0;
	class = bpf_map_lookup_elem(&by_interface, &index);
	return class ? *class : 0;
}

/* The id of the socket's cgroup, or of the one above it that is in `map`; 0: none. The socket must be this host's. */
static __always_inline __u64 known_cgroup(struct __sk_buff *skb, void *map)
{
	__u32 first = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &first);
	if (!set || !set->levels)
		return 0;
	/* clang enters a loop in its middle, and kernel 6.1 refuses that: "back-edge". */
#pragma unroll
	for (int level = 1; level < MOST_LEVELS; level++) {
		__u64 id;
		if (!(set->levels >> level & 1))
			continue;
		id = bpf_skb_ancestor_cgroup_id(skb, level);
		if (!id)
			return 0; /* its cgroup is above this level */
		if (bpf_map_lookup_elem(map, &id))
			return id;
	}
	return 0;
}

static __always_inline __u32 class_by_cgroup(struct __sk_buff *skb)
{
	__u64 id = known_cgroup(skb, &by_cgroup);
	__u32 *class = id ? bpf_map_lookup_elem(&by_cgroup, &id) : 0;
	return class ? *class : 0;
}

#endif
