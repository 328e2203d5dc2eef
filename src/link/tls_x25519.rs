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
        // A point of small order gives zeros for every key (RFC 8446, section 7.4.2).
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

    /// RFC 7748, section 6.1.
    #[test]
    fn the_specifications_keys_give_its_secret() {
        let bytes = |digits: &str| -> [u8; LEN] { crate::base::hex::decode(digits).unwrap().try_into().unwrap() };
        let public = bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        let private = bytes("77076d0a7318a57d3c16c17251b26645df4c2f92ebc099a0d8ed5f8d5e1f2ab2");
        let peer = bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let exchange = Box::new(Exchange { private, public });
        let secret = exchange.complete(&peer).unwrap();
        let expected = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        assert_eq!(secret.secret_bytes(), expected);
    }

    #[test]
    fn points_of_small_order_and_keys_of_another_length_are_refused() {
        let one = std::array::from_fn::<u8, LEN, _>(|at| u8::from(at == 0));
        for peer in [&[0; LEN][..], &one, &[9; LEN - 1], &[9; LEN + 1], &[]] {
            assert!(X25519.start().unwrap().complete(peer).is_err(), "{peer:?}");
        }
    }
}
