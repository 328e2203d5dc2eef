//! X25519 for TLS with the crate `curve25519-dalek`, which makes host keys anyway, instead of ring, whose table for this curve takes
//! 25 KB.

use crate::base::random;
use curve25519_dalek::MontgomeryPoint;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// ECDHE on Curve25519 (RFC 8446, section 4.2.8.2; RFC 7748, section 6.1).
pub const X25519: &dyn SupportedKxGroup = &Group;

/// The length of a private key, a public key and a secret, in bytes.
const LEN: usize = 32;

#[derive(Debug)]
struct Group;

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut private = [0; LEN];
        random::fill(&mut private, "https").map_err(|_| GetRandomFailed)?;
        let public = MontgomeryPoint::mul_base_clamped(private).to_bytes();
        Ok(Box::new(Exchange { private, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

struct Exchange {
    private: [u8; LEN],
    public: [u8; LEN],
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = MontgomeryPoint(peer.try_into().map_err(|_| PeerMisbehaved::InvalidKeyShare)?);
        let secret = peer.mul_clamped(self.private).to_bytes();
        // A point of small order results in zeros for every key (RFC 8446, section 7.4.2).
        if secret == [0; LEN] {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        Ok(secret.as_slice().into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::kx_group;

    #[test]
    fn both_sides_have_one_secret() {
        for _ in 0..20 {
            let (ours, theirs) = (X25519.start().unwrap(), kx_group::X25519.start().unwrap());
            let (our_key, their_key) = (ours.pub_key().to_vec(), theirs.pub_key().to_vec());
            let (ours, theirs) = (ours.complete(&their_key).unwrap(), theirs.complete(&our_key).unwrap());
            assert_eq!(ours.secret_bytes(), theirs.secret_bytes());
        }
    }

    /// RFC 7748, section 5.2, the first vector.
    #[test]
    fn the_specifications_key_and_point_give_its_secret() {
        let bytes = |digits: &str| -> [u8; LEN] { crate::base::hex::decode(digits).unwrap().try_into().unwrap() };
        let private = bytes("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
        let exchange = Box::new(Exchange { private, public: [0; LEN] });
        let secret =
            exchange.complete(&bytes("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")).unwrap();
        let expected = bytes("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
        assert_eq!(secret.secret_bytes(), expected);
    }

    #[test]
    fn refuses_small_order_points_and_wrong_lengths() {
        let one = std::array::from_fn::<u8, LEN, _>(|at| u8::from(at == 0));
        for peer in [&[0; LEN][..], &one, &[9; LEN - 1], &[9; LEN + 1], &[]] {
            assert!(X25519.start().unwrap().complete(peer).is_err(), "{peer:?}");
        }
    }
}
