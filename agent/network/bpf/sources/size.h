/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What a packet takes on the wire: one that a NIC or a bridge cuts in segments has their headers many times. */
#ifndef J10CE_SIZE_H
#define J10CE_SIZE_H

#include "packet.h"

#define ETHERNET_HEADER 14
#define IPV6_HEADER 40
#define UDP_HEADER 8
#define TCP_HEADER 20
#define TRANSPORT_TCP 6
#define TRANSPORT_UDP 17

static __always_inline __u32 segments(struct __sk_buff *skb)
{
	return skb->gso_segs ? skb->gso_segs : 1;
}

/* Bytes of the headers of network and transport, that every segment has. IPv6 extension headers are not counted. */
static __always_inline __u32 segment_headers(struct __sk_buff *skb)
{
	__u32 offset = 0, network;
	__u8 byte, transport;
	__be16 protocol = network_protocol(skb, &offset);
	if (protocol == bpf_htons(PROTOCOL_IPV4)) {
		if (bpf_skb_load_bytes_relative(skb, offset, &byte, 1, BPF_HDR_START_NET) ||
		    bpf_skb_load_bytes_relative(skb, offset + 9, &transport, 1, BPF_HDR_START_NET))
			return 0;
		network = (byte & 15) * 4;
	} else if (protocol == bpf_htons(PROTOCOL_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, offset + 6, &transport, 1, BPF_HDR_START_NET))
			return 0;
		network = IPV6_HEADER;
	} else {
		return 0;
	}
	offset += network;
	if (transport == TRANSPORT_UDP)
		return offset + UDP_HEADER;
	if (transport == TRANSPORT_TCP &&
	    !bpf_skb_load_bytes_relative(skb, offset + 12, &byte, 1, BPF_HDR_START_NET))
		return offset + (byte >> 4) * 4;
	return offset + TCP_HEADER;
}

/* link: bytes of a link's header that skb->len leaves out (cgroup_skb), or has but once. */
static __always_inline __u64 wire_bytes(struct __sk_buff *skb, __u32 missing)
{
	__u64 bytes = skb->len + missing;
	__u32 more = segments(skb) - 1;
	if (more)
		bytes += (__u64)more * (segment_headers(skb) + ETHERNET_HEADER);
	return bytes;
}

#endif
